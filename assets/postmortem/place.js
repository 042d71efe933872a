/**
 * Place: what the page shows – file, device, range, moment, selection, tab – kept in the URL, so that a link leads to the same view.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const NUMBERS = ["device", "from", "to", "event", "allocation"];
  const WORDS = { file: /^[0-9a-f]{16}$/, axis: /^(time|step)$/, colour: /^(category|stack|size|stream)$/, address: /^0x[0-9a-f]{1,16}$/,
    tab: /^(stacks|allocations|sites|events|segments|settings)$/ };
  const AFTER_MS = 100;

  const now = Object.fromEntries([...NUMBERS, ...Object.keys(WORDS)].map((name) => [name, null]));
  let timer = null;

  /** Take the place from the URL; what is not well formed is left out. */
  function read() {
    const query = new URLSearchParams(window.location.search);
    for (const name of NUMBERS) {
      const text = query.get(name);
      now[name] = text !== null && /^-?\d{1,19}(\.\d+)?$/.test(text) ? Number(text) : null;
    }
    for (const [name, form] of Object.entries(WORDS)) {
      const text = query.get(name);
      now[name] = text !== null && form.test(text) ? text : null;
    }
    return now;
  }

  /** Change parts of the place, and let the URL follow: browsers refuse too many changes a second. */
  function set(changes) {
    Object.assign(now, changes);
    clearTimeout(timer);
    timer = setTimeout(write, AFTER_MS);
  }

  function write() {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(now)) if (value !== null) query.set(name, value);
    window.history.replaceState(null, "", query.size ? `?${query}` : window.location.pathname);
  }

  /** Return the address of what is shown now. */
  function link() {
    clearTimeout(timer);
    write();
    return window.location.href;
  }

  /** Return the path of one of the routes of the shown device. */
  const route = (name) => `files/${now.file}/${now.device}/${name}`;

  vramscope.place = { now, read, set, link, route };
})();
