export type VNode = any;
export const Fragment: any;
export function h(type: any, props: any, ...children: any[]): VNode;
export function render(what: VNode, where: Element): void;
