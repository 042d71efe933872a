/**
 * Compare: keeps the page's address in step with what it shows, so that a copied link shows the same, and its theme.
 */
(() => {
  const { theme } = window.vramscope;

  /** Put the query of the shown sides into the address, without a new entry in the history. */
  function showCompared(query) {
    if (typeof query === "string") history.replaceState(history.state, "", location.pathname + query);
  }

  window.dash_clientside = Object.assign(window.dash_clientside || {}, {
    vramscope: { showCompared, theme: (value) => theme.show(value) },
  });
})();
