// The page's colours: those of the system, or what a reader chose, which the next page has too.

const DARK = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";

function setTheme(value) {
  theme = value;
  document.documentElement.dataset.scheme = value === "auto" ? (DARK.matches ? "dark" : "light") : value;
  try {
    localStorage.setItem("mesh-dse-theme", value);
  } catch {
    /* a page from a file may have no storage */
  }
}

function storedTheme() {
  try {
    return localStorage.getItem("mesh-dse-theme") ?? "auto";
  } catch {
    return "auto";
  }
}

function themeChoice(onchange) {
  const themes = [
    ["auto", "Auto"],
    ["light", "Light"],
    ["dark", "Dark"],
  ];
  return segments("Theme", themes, theme, value => {
    setTheme(value);
    onchange();
  });
}

setTheme(storedTheme());
