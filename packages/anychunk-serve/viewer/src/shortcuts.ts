/** What the user can do by a key or a button, and which keys do it. */

import type { Key } from "./keys";
import type { Point } from "./view";

export interface Actions {
  zoomBy(factor: number): void;
  /** Device pixels per pixel of the image. */
  zoomTo(zoom: number): void;
  showWhole(): void;
  pan(by: Point): void;
  stepSlider(by: number): void;
  playSlider(): void;
  stepImage(by: number): void;
  /** Take the automatic contrast from the plane that is shown. */
  resetContrast(): void;
  swapBands(): void;
  stepMap(by: number): void;
  toggleGrid(): void;
  togglePlanes(): void;
  showTools(): void;
  /** Set a point of a measurement in the middle of the view. */
  addPoint(): void;
  removePoint(): void;
  stopMeasuring(): void;
  searchFiles(): void;
  showMetadata(): void;
  searchMetadata(): void;
  toggleTheme(): void;
  toggleHelp(): void;
}

/** CSS pixels per press of an arrow key. */
const PAN = 80;

/** Return all shortcuts; those with an empty label are not listed in the help. */
export const shortcuts = (actions: Actions): Key[] => [
  { keys: ["+", "="], label: "+", text: "zoom in", run: () => actions.zoomBy(2) },
  { keys: ["-", "_"], label: "-", text: "zoom out", run: () => actions.zoomBy(0.5) },
  { keys: ["0", "Home"], label: "0", text: "whole image", run: () => actions.showWhole() },
  { keys: ["1"], label: "1", text: "one image pixel per screen pixel", run: () => actions.zoomTo(1) },
  { keys: ["ArrowLeft"], label: "← → ↑ ↓", text: "move", run: () => actions.pan({ x: PAN, y: 0 }) },
  { keys: ["ArrowRight"], label: "", text: "", run: () => actions.pan({ x: -PAN, y: 0 }) },
  { keys: ["ArrowUp"], label: "", text: "", run: () => actions.pan({ x: 0, y: PAN }) },
  { keys: ["ArrowDown"], label: "", text: "", run: () => actions.pan({ x: 0, y: -PAN }) },
  { keys: [","], label: ", .", text: "last slider: back, forward", run: () => actions.stepSlider(-1) },
  { keys: ["."], label: "", text: "", run: () => actions.stepSlider(1) },
  { keys: [" "], label: "space", text: "play the last slider", run: () => actions.playSlider() },
  { keys: ["["], label: "[ ]", text: "previous, next image", run: () => actions.stepImage(-1) },
  { keys: ["]"], label: "", text: "", run: () => actions.stepImage(1) },
  { keys: ["a"], label: "a", text: "contrast from the plane shown", run: () => actions.resetContrast() },
  { keys: ["c"], label: "c", text: "colours, or one band", run: () => actions.swapBands() },
  {
    keys: ["m", "M"],
    label: "m",
    text: "next colour map; with shift, the previous one",
    run: (event) => actions.stepMap(event.shiftKey ? -1 : 1),
  },
  { keys: ["g"], label: "g", text: "chunk grid", run: () => actions.toggleGrid() },
  { keys: ["v"], label: "v", text: "planes along the other axes", run: () => actions.togglePlanes() },
  { keys: ["r"], label: "r", text: "tools: measure, go to, compare, save", run: () => actions.showTools() },
  {
    keys: ["Enter"],
    label: "enter",
    text: "measuring: add the middle of the view",
    run: () => actions.addPoint(),
  },
  { keys: ["Backspace"], label: "", text: "", run: () => actions.removePoint() },
  { keys: ["Escape"], label: "esc", text: "stop measuring", run: () => actions.stopMeasuring() },
  { keys: ["f"], label: "f", text: "search files", run: () => actions.searchFiles() },
  { keys: ["i"], label: "i", text: "metadata", run: () => actions.showMetadata() },
  { keys: ["/"], label: "/", text: "search metadata", run: () => actions.searchMetadata() },
  { keys: ["t"], label: "t", text: "dark or light", run: () => actions.toggleTheme() },
  { keys: ["?"], label: "?", text: "this panel", run: () => actions.toggleHelp() },
];
