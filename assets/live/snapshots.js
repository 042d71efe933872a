/**
 * Snapshots: the keyboard's way into the list of snapshots and out of it. Escape closes the list, or an explanation that shows
 * because its question mark has the focus.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const element = (id) => document.getElementById(id);
  let open = false;

  /** The list was opened or closed: take the focus there, or back to the button that opened it. */
  function shown(hidden) {
    if (!hidden) element("dump-panel").focus();
    else if (open) element("dump").focus();
    open = !hidden;
  }

  // Before the map, which takes Escape for itself.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (open) {
      element("dump-close").click();
      event.stopPropagation();
    } else if (document.activeElement.matches(".hint")) {
      document.activeElement.blur();
    }
  }, true);

  vramscope.snapshots = { shown };
})();
