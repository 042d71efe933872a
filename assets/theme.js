/**
 * Theme: the page's colours as the scripts that draw need them, and the switch between system, light and dark.
 * The style sheet holds every colour once, as CSS variables with light-dark(); nothing here knows a colour's value.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const listeners = [];
  let probe = null;

  /** Return the colour of a CSS variable as the browser resolves it now, e.g. "rgb(59, 130, 196)". */
  function colour(name) {
    if (!probe) {
      probe = document.createElement("i");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  /** Return a CSS variable's colour as a little-endian RGBA pixel for an ImageData seen as Uint32Array. */
  function pixel(name) {
    const [r, g, b, a = 1] = colour(name).match(/[\d.]+/g).map(Number);
    return ((Math.round(a * 255) << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  /** Replace each "var(--name)" within a figure (objects, arrays, strings) by its colour; arrays of numbers pass through. */
  function resolved(value) {
    if (typeof value === "string") return value.startsWith("var(") ? colour(value.slice(4, -1)) : value;
    if (Array.isArray(value)) return typeof value[0] === "object" && value[0] ? value.map(resolved) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolved(inner)]));
    }
    return value;
  }

  /** Return text so that Plotly, which reads a subset of HTML in labels, shows it as it is. */
  function escape(text) {
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  }

  function changed() {
    for (const listener of listeners) listener();
  }

  /** Show "light" or "dark", or follow the system. */
  function show(value) {
    if (value === "light" || value === "dark") document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    changed();
  }

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  vramscope.theme = { colour, pixel, resolved, escape, show, onChange: (listener) => listeners.push(listener) };
})();
