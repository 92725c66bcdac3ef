/** Creates elements of the page. */

type Child = Node | string | null | undefined | false;
type Props<K extends keyof HTMLElementTagNameMap> = Partial<
  Omit<HTMLElementTagNameMap[K], "style" | "dataset" | "children">
> & { aria?: Record<string, string>; data?: Record<string, string>; style?: Partial<CSSStyleDeclaration> };

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props<K> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  const { aria, data, style, ...rest } = props;
  Object.assign(made, rest);
  for (const [name, value] of Object.entries(aria ?? {}))
    made.setAttribute(name === "role" ? name : `aria-${name}`, value);
  Object.assign(made.dataset, data ?? {});
  Object.assign(made.style, style ?? {});
  made.append(...children.filter((child): child is Node | string => child != null && child !== false));
  return made;
}

/** Return an element that index.html declares. */
export function found<T extends HTMLElement = HTMLElement>(id: string): T {
  const it = document.getElementById(id);
  if (!it) throw new Error(`index.html has no #${id}`);
  return it as T;
}

const ICONS: Record<string, string> = {
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  grid: "M4 4h16v16H4zM4 9.33h16M4 14.67h16M9.33 4v16M14.67 4v16",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  help: "M9.1 9a3 3 0 015.8 1c0 2-3 2.5-3 4.5M12 18h.01",
  files: "M4 6h16M4 12h16M4 18h16",
  tune: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12l5 5 9-10",
  close: "M6 6l12 12M18 6L6 18",
  compare: "M4 5h7v14H4zM13 5h7v14h-7M16 9h1M16 13h1",
  ruler: "M3 16L16 3l5 5L8 21zM7 12l2 2M10 9l3 3M13 6l2 2",
  planes: "M4 4h9v9H4zM15 4h5v9h-5M4 15h9v5H4z",
};

export function icon(name: string): SVGSVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name] ?? "");
  svg.append(path);
  return svg;
}

export function iconButton(name: string, title: string, onclick: () => void): HTMLButtonElement {
  return element(
    "button",
    { className: "icon-button", type: "button", title, onclick, aria: { label: title } },
    icon(name) as unknown as Node,
  );
}
