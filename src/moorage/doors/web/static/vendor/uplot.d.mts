declare class uPlot {
  constructor(options: any, data: any, where: HTMLElement);
  setSize(size: { width: number; height: number }): void;
  setData(data: any): void;
  destroy(): void;
  static [name: string]: any;
}
export default uPlot;
