/** Mouse, touch and wheel on the canvas as pans, zooms and taps. Positions are CSS pixels. */

import type { Point } from "./view";

export interface Gestures {
  pan(by: Point): void;
  zoom(at: Point, factor: number): void;
  tap(at: Point): void;
  /** null: the pointer left. */
  hover(at: Point | null): void;
}

const TAP_REACH = 5;
const DOUBLE_MS = 300;

export function listen(target: HTMLElement, gestures: Gestures): void {
  const held = new Map<number, Point>();
  let moved = 0;
  let lastTap = { time: 0, at: { x: 0, y: 0 } };

  const place = (event: MouseEvent): Point => {
    const box = target.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spread = (): { middle: Point; distance: number } => {
    const [a, b] = [...held.values()] as [Point, Point];
    return { middle: { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }, distance: Math.hypot(a.x - b.x, a.y - b.y) };
  };

  target.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    target.setPointerCapture(event.pointerId);
    target.focus({ preventScroll: true });
    if (held.size === 0) moved = 0;
    held.set(event.pointerId, place(event));
    target.classList.add("is-held");
  });
  target.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = held.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") gestures.hover(at);
      return;
    }
    if (held.size === 1) {
      moved += Math.hypot(at.x - before.x, at.y - before.y);
      held.set(event.pointerId, at);
      if (moved > TAP_REACH) gestures.pan({ x: at.x - before.x, y: at.y - before.y });
    } else if (held.size === 2) {
      const old = spread();
      held.set(event.pointerId, at);
      const now = spread();
      moved = TAP_REACH + 1;
      gestures.pan({ x: now.middle.x - old.middle.x, y: now.middle.y - old.middle.y });
      if (old.distance > 0) gestures.zoom(now.middle, now.distance / old.distance);
    }
    gestures.hover(at);
  });
  const release = (event: PointerEvent): void => {
    if (!held.delete(event.pointerId)) return;
    if (held.size === 0) target.classList.remove("is-held");
    if (event.type !== "pointerup" || moved > TAP_REACH || held.size > 0) return;
    const at = place(event);
    const isDouble =
      event.timeStamp - lastTap.time < DOUBLE_MS && Math.hypot(at.x - lastTap.at.x, at.y - lastTap.at.y) < 20;
    lastTap = { time: isDouble ? 0 : event.timeStamp, at };
    if (isDouble) gestures.zoom(at, event.shiftKey ? 0.5 : 2);
    else {
      gestures.hover(at);
      gestures.tap(at);
    }
  };
  target.addEventListener("pointerup", release);
  target.addEventListener("pointercancel", release);
  target.addEventListener("pointerleave", (event) => {
    if (!held.has(event.pointerId)) gestures.hover(null);
  });
  target.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      const by = Math.max(-240, Math.min(240, event.deltaY * lines));
      gestures.zoom(place(event), Math.exp(-by * (event.ctrlKey ? 0.01 : 0.0022)));
    },
    { passive: false },
  );
}
