/**
 * Memory colours: which colour an allocation has by owner, stack, size or stream, and what the legend says of it.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const NO_STACK = 4294967295;
  const HUES = 24;

  let cached = null; // {key, pixels}

  /** Return a colour's pixel (little-endian RGBA) from hue and lightness; saturation is the same for all. */
  function hsl(hue, lightness) {
    const channel = (n) => {
      const k = (n + hue / 30) % 12;
      const amplitude = 0.5 * Math.min(lightness, 1 - lightness);
      return Math.round(255 * (lightness - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
    };
    return ((255 << 24) | (channel(4) << 16) | (channel(8) << 8) | channel(0)) >>> 0;
  }

  const css = (pixel) => `rgb(${pixel & 255}, ${(pixel >> 8) & 255}, ${(pixel >> 16) & 255})`;

  /** Return the pixel of a key: owners have the page's colours; sizes go from pale to dark; stacks and streams take turns. */
  function keyPixel(by, key) {
    if (by === "category") return vramscope.theme.pixel(`--o-${key}`);
    if (by === "size") return hsl(215, Math.max(0.28, Math.min(0.85, 0.85 - (key - 9) * 0.024)));
    if (by === "stack" && key === NO_STACK) return vramscope.theme.pixel("--o-0");
    const turn = Math.imul(key + 1, 2654435761) >>> 0;
    return hsl(((turn >>> 8) % HUES) * (360 / HUES), 0.46 + ((turn >>> 16) % 3) * 0.09);
  }

  /** Return what paints a frame: `of(frame, k)`, and the colours of the rest, the separators and the marked edges. */
  function forFrame(frame, theme) {
    const by = frame.header.colour;
    const key = `${by}/${theme}`;
    if (!cached || cached.key !== key) cached = { key, pixels: new Map() };
    const { pixels } = cached;
    const known = (value) => {
      let found = pixels.get(value);
      if (found === undefined) pixels.set(value, (found = keyPixel(by, value)));
      return found;
    };
    return {
      of: (painted, k) => known(painted.colour[k]),
      separator: vramscope.theme.pixel("--panel"),
      mark: vramscope.theme.pixel("--text"),
      restLight: vramscope.theme.pixel("--rest-light"),
      restDark: vramscope.theme.pixel("--rest-dark"),
    };
  }

  /** Return the legend as [CSS colour, text], the largest first. */
  function legend(frame) {
    const { colour: by, labels, drawn, visible } = frame.header;
    const entries = [];
    if (by === "stack") entries.push([null, "each stack its own colour"]);
    else {
      const held = new Map();
      for (let k = 0; k < drawn; k++) held.set(frame.colour[k], (held.get(frame.colour[k]) || 0) + frame.bytes[k]);
      const keys = [...held.keys()].sort((a, b) => (by === "size" ? b - a : held.get(b) - held.get(a)));
      for (const key of keys.slice(0, 9)) entries.push([css(keyPixel(by, key)), labels[key] ?? String(key)]);
      if (keys.length > 9) entries.push([null, `and ${keys.length - 9} more`]);
    }
    if (visible > drawn) entries.push(["rest", `${(visible - drawn).toLocaleString("en")} smaller ones`]);
    return entries;
  }

  vramscope.memoryColours = { forFrame, legend };
})();
