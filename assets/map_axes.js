/**
 * Map axes: Plotly's part of the segment map. Where the lines lie, in which range, and what the user did to that range. The
 * canvas is painted before Plotly has started, so each answer here holds without it.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const NARROW_PX = 640;

  let plotted = null; // Plotly's div, once it is there
  let styled = ""; // the looks it was given last
  let wanted = null; // the view and the number of lines to show with the next frame

  const element = (id) => document.getElementById(id);

  /** Return where the lines lie within the map: where Plotly's axes are, or, until it has started, where they are going to be. */
  function box() {
    if (plotted) {
      const { _size: size, width, height } = plotted._fullLayout;
      return { left: size.l, top: size.t, width: size.w, height: size.h, outerWidth: width, outerHeight: height };
    }
    const { clientWidth, clientHeight } = element("map");
    const { l, r, t, b } = margins(clientWidth);
    const [width, height] = [clientWidth - l - r, clientHeight - t - b];
    return { left: l, top: t, width, height, outerWidth: clientWidth, outerHeight: clientHeight };
  }

  /** Return the axes' margins; where the page is narrow, the labels beside the lines are short. */
  function margins(width) {
    return width < NARROW_PX ? { l: 66, r: 72, t: 4, b: 24 } : { l: 148, r: 76, t: 4, b: 24 };
  }

  /** Take Plotly's part when it has come. `ready` is called then, `moved` with each range the user goes to, `drawn` after a plot. */
  function attach(ready, moved, drawn) {
    const found = document.querySelector("#map-graph .js-plotly-plot");
    if (!found || !found.on || !found._fullLayout || !found._fullLayout._size) {
      setTimeout(attach, 50, ready, moved, drawn);
      return;
    }
    plotted = found;
    style();
    for (const name of ["plotly_relayouting", "plotly_relayout"]) plotted.on(name, (event) => follow(event, moved));
    plotted.on("plotly_afterplot", drawn);
    ready();
  }

  /** Give Plotly the page's colours and margins; where fingers are the pointer, dragging must scroll the page. */
  function style() {
    const width = element("map").clientWidth;
    if (!plotted || !width) return; // hidden: there will be a size to go by when it is shown
    const margin = margins(width);
    const looks = {
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "pan",
      "font.color": vramscope.theme.colour("--muted"),
      "margin.l": margin.l,
      "margin.r": margin.r,
    };
    if (JSON.stringify(looks) === styled) return;
    styled = JSON.stringify(looks);
    window.Plotly.relayout(plotted, looks);
  }

  /** Tell the changed ends of a range, or null for "show it all": Plotly's reset goes to the range the layout began with. */
  function follow(event, moved) {
    const at = (axis, end) => event[`${axis}.range[${end}]`] ?? (event[`${axis}.range`] || [])[end];
    const [x0, x1, y1, y0] = [at("xaxis", 0), at("xaxis", 1), at("yaxis", 0), at("yaxis", 1)];
    if (x0 === undefined && y1 === undefined) return;
    if (y1 === 1 && y0 === 0) moved(null);
    else moved({ ...(x0 === undefined ? {} : { x0, x1 }), ...(y1 === undefined ? {} : { y0, y1 }) });
  }

  /** Let the axes show a view of so many lines, with the next frame: relayouting costs more than a wheel's turn takes. */
  function show(view, lines) {
    if (!plotted) return;
    const waiting = wanted !== null;
    wanted = { view, lines };
    if (waiting) return;
    requestAnimationFrame(() => {
      const { view: seen, lines: limit } = wanted;
      wanted = null;
      window.Plotly.update(plotted, {}, {
        "xaxis.range": [seen.x0, seen.x1],
        "yaxis.range": [seen.y1, seen.y0],
        "yaxis.minallowed": 0,
        "yaxis.maxallowed": limit,
      });
    });
  }

  vramscope.mapAxes = { attach, box, style, show, plotted: () => plotted };
})();
