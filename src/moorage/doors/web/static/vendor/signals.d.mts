export interface Signal<T> { value: T; peek(): T; subscribe(fn: (value: T) => void): () => void }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(make: () => T): { readonly value: T; peek(): T };
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function useSignal<T>(value: T): Signal<T>;
export function useComputed<T>(make: () => T): { readonly value: T; peek(): T };
export function useSignalEffect(run: () => void | (() => void)): void;
