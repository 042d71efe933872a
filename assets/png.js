/**
 * PNG: saves a canvas that lies under Plotly's axes as one picture with a title.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const TITLE_PX = 40;

  /** Save what `plotted`'s axes and the canvas below them show. */
  async function save(canvas, plotted, title, fileName) {
    const sheet = document.createElement("canvas");
    sheet.width = canvas.width;
    sheet.height = canvas.height;
    const context = sheet.getContext("2d");
    context.fillStyle = vramscope.theme.colour("--panel");
    context.fillRect(0, 0, sheet.width, sheet.height);
    context.drawImage(canvas, 0, 0);
    const { width, height, margin } = plotted._fullLayout;
    const { l, r, t, b } = margin;
    const paper = { w: width - l - r, h: height - t - b };
    const axis = (name) => ({ ...plotted.layout[name], range: plotted._fullLayout[name].range.slice() });
    const figure = {
      data: [],
      layout: {
        width,
        height: height + TITLE_PX,
        margin: { l, r, t: t + TITLE_PX, b },
        paper_bgcolor: vramscope.theme.colour("--panel"),
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: vramscope.theme.colour("--text"), size: 11 },
        title: { text: vramscope.theme.escape(title), x: 0.01, font: { size: 13 } },
        xaxis: axis("xaxis"),
        yaxis: axis("yaxis"),
        images: [
          {
            source: sheet.toDataURL("image/png"),
            xref: "paper",
            yref: "paper",
            x: -l / paper.w,
            y: 1 + t / paper.h,
            sizex: width / paper.w,
            sizey: height / paper.h,
            sizing: "stretch",
            layer: "below",
          },
        ],
      },
    };
    const url = await window.Plotly.toImage(figure, { format: "png", width, height: height + TITLE_PX, scale: 2 });
    const link = document.createElement("a");
    link.href = url;
    link.download = fileName;
    link.click();
  }

  vramscope.png = { save };
})();
