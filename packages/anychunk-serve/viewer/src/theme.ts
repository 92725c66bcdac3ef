/** Dark or light theme: the system's, until the user chooses one. */

const KEY = "anychunk-theme";

export function startTheme(): void {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset["theme"] = chosen;
}

export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme(): void {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset["theme"] = next;
  localStorage.setItem(KEY, next);
}
