/** The token of `anychunk serve --token`: kept for this tab, out of the address and of copied links. */

const KEY = "anychunk-token";

/** Move the token from the address to session storage. */
export function takeToken(): void {
  const url = new URL(location.href);
  const token = url.searchParams.get("token");
  if (token === null) return;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // storage is off: the server's cookie carries it
  }
  url.searchParams.delete("token");
  history.replaceState(null, "", url.pathname + url.search + url.hash);
}

export function token(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function tokenHeaders(): Record<string, string> {
  const given = token();
  return given === null ? {} : { Authorization: `Bearer ${given}` };
}
