export function useCallback<T extends Function>(what: T, inputs?: readonly any[]): T;
export function useEffect(effect: () => void | (() => void), inputs?: readonly any[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly any[]): void;
export function useMemo<T>(make: () => T, inputs?: readonly any[]): T;
export function useRef<T = any>(value?: T | null): { current: T };
export function useState<T = any>(value?: T | (() => T)): [T, (value: T | ((before: T) => T)) => void];
