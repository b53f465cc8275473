"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  // Charts are drawn in the colours of the page, light or dark.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const inColours = (layout) => {
    const [ink, line, card] = ["ink", "line", "card"].map(colour);
    const found = { ...layout, paper_bgcolor: card, plot_bgcolor: card, font: { ...layout.font, color: ink } };
    found.hoverlabel = { ...layout.hoverlabel, bgcolor: card, bordercolor: ink, font: { color: ink } };
    for (const name of Object.keys(layout).filter((each) => /^[xy]axis/.test(each))) {
      found[name] = { ...layout[name], gridcolor: line, zerolinecolor: line, linecolor: line };
    }
    return found;
  };
  // Black, the last colour of the palette, cannot be seen on a dark page.
  const visible = (trace) =>
    dark.matches && trace.line?.color === "#000000" ? { ...trace, line: { ...trace.line, color: "#ffffff" } } : trace;
  const draw = (id, trace, layout, height) => {
    if (height) element(id).style.height = height + "px";
    Plotly.react(element(id), [trace], inColours(Object.assign({}, data.layout, layout)), config);
  };
  const axis = (part) => Object.assign({}, data.axis, part);
  const option = (value, text) => new Option(text, value);

  // Charts that never change come whole from Python.
  const drawCharts = () => {
    for (const [id, figure] of Object.entries(data.charts)) {
      Plotly.react(element(id), figure.data.map(visible), inColours(figure.layout), config);
    }
  };
  drawCharts();

  // Ticks of a logarithmic colour bar: 1, 2 and 5 times powers of ten, or all digits if these are
  // few, or both ends.
  const ticks = (low, high) => {
    for (const digits of [[1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
      const values = [];
      for (let power = Math.floor(low) - 1; power <= Math.ceil(high); power++) {
        for (const digit of digits) {
          const value = Math.log10(digit) + power;
          if (value >= low - 1e-9 && value <= high + 1e-9) values.push(value);
        }
      }
      if (values.length > 2) return values;
    }
    return Number.isFinite(low) ? [low, high] : [];
  };
  const short = (value) => (value === null ? "" : Number(value.toPrecision(3)).toString());

  const drawMaps = () => {
    const metric = data.metrics.find((item) => item.key === element("metric").value);
    const frame = data.frames[Number(element("step").value)];
    element("step-label").textContent = frame.step === null ? "" : String(frame.step);
    const shown = (value) =>
      value === null ? null : metric.is_log ? (value > 0 ? Math.log10(value) : null) : value;
    const every = data.frames.flatMap((item) => item.values[metric.key].map(shown));
    const finite = every.filter((value) => value !== null);
    // Of a long log they are more than a function takes arguments.
    const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
    const high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
    const bar = { thickness: 10, outlinewidth: 0 };
    if (metric.is_log) {
      bar.tickvals = ticks(low, high);
      bar.ticktext = bar.tickvals.map((value) => short(10 ** value));
    }
    for (const map of data.maps) {
      const at = (cell) => (cell === null ? null : frame.values[metric.key][cell]);
      const values = map.cells.map((row) => row.map(at));
      const trace = {
        type: "heatmap",
        x: map.kinds,
        y: map.layers,
        z: values.map((row) => row.map(shown)),
        zmin: low,
        zmax: high,
        text: values.map((row) => row.map((value) => (value === null ? "" : short(value)))),
        texttemplate: map.layers.length <= 24 ? "%{text}" : "",
        customdata: map.cells.map((row, i) =>
          row.map((cell, j) => (cell === null ? "" : data.names[cell] + "<br><b>" + String(values[i][j]) + "</b>"))),
        hovertemplate: "%{customdata}<extra></extra>",
        hoverongaps: false,
        colorscale: "Cividis",
        xgap: 2,
        ygap: 2,
        colorbar: bar,
      };
      element(map.id + "-caption").textContent = map.title + ": " + metric.text;
      draw(map.id, trace, {
        xaxis: axis({ type: "category", showgrid: false }),
        yaxis: axis({ type: "category", autorange: "reversed", showgrid: false }),
      }, Math.max(330, 110 + 26 * map.layers.length));
    }
  };

  const drawHeads = () => {
    const item = data.heads[Number(element("sublayer").value)];
    const names = item.entropy_share.map((_, index) => "head " + (index + 1));
    draw("entropy", {
      type: "bar",
      x: names,
      y: item.entropy_share,
      customdata: item.entropy,
      marker: { color: "#0072B2" },
      hovertemplate: "%{x}<br>%{y:.4f} of log n<br>%{customdata:.4f} nats<extra></extra>",
    }, {
      xaxis: axis({ type: "category" }),
      yaxis: axis({ range: [0, 1.02], title: { text: "share of log n" } }),
    });
    draw("similarity", {
      type: "heatmap",
      x: names,
      y: names,
      z: item.similarity,
      zmin: -1,
      zmax: 1,
      colorscale: data.diverging,
      xgap: 2,
      ygap: 2,
      colorbar: { thickness: 10, outlinewidth: 0 },
      hovertemplate: "%{y} and %{x}<br><b>%{z:.4f}</b><extra></extra>",
    }, {
      xaxis: axis({ type: "category", showgrid: false }),
      yaxis: axis({ type: "category", autorange: "reversed", showgrid: false }),
    });
    drawAttention(item);
  };

  const drawAttention = (item) => {
    const map = item.map;
    element("attention-figure").hidden = element("head-control").hidden = map === null;
    if (map === null) return;
    const choice = element("head").value || "mean";
    const count = map.weights.length;
    element("head").replaceChildren(
      option("mean", "mean of all"),
      ...map.weights.map((_, index) => option(String(index), "head " + (index + 1))));
    element("head").value = choice === "mean" || Number(choice) < count ? choice : "mean";
    const chosen = element("head").value;
    const mean = (i, j) => map.weights.reduce((sum, head) => sum + head[i][j], 0) / count;
    const weight = chosen === "mean" ? mean : (i, j) => map.weights[Number(chosen)][i][j];
    const grid = map.queries.map((_, i) => map.keys.map((_, j) => weight(i, j)));
    const tokens = (labels) => ({
      tickmode: "array", tickvals: labels.map((_, index) => index), ticktext: labels,
      showgrid: false, zeroline: false,
    });
    element("attention-map-caption").textContent = item.title + ": rows look at columns";
    draw("attention-map", {
      type: "heatmap",
      z: grid,
      zmin: 0,
      zmax: 1,
      colorscale: data.sequential,
      xgap: 1,
      ygap: 1,
      colorbar: { thickness: 10, outlinewidth: 0 },
      customdata: grid.map((row, i) => row.map((_, j) => map.queries[i] + " → " + map.keys[j])),
      hovertemplate: "%{customdata}<br><b>%{z:.4f}</b><extra></extra>",
    }, {
      xaxis: axis({ ...tokens(map.keys), side: "top", tickangle: -50 }),
      yaxis: axis({ ...tokens(map.queries), autorange: "reversed" }),
      margin: { l: 20, r: 20, t: 20, b: 20 },
    }, 130 + 26 * map.queries.length);
  };

  const slider = element("step");
  slider.max = String(data.frames.length - 1);
  slider.value = slider.max;
  element("step-control").hidden = data.frames.length < 2;
  slider.addEventListener("input", drawMaps);
  element("metric").addEventListener("change", drawMaps);
  drawMaps();
  if (data.heads.length > 0) {
    // What the last cross-attention looks at is what most people want to see first.
    const cross = data.heads.findLastIndex((item) => item.map && item.title.endsWith("cross_attention"));
    element("sublayer").value = String(Math.max(cross, 0));
    element("sublayer").addEventListener("change", drawHeads);
    element("head").addEventListener("change", drawHeads);
    drawHeads();
  }
  dark.addEventListener("change", () => {
    drawCharts();
    drawMaps();
    if (data.heads.length > 0) drawHeads();
  });
})();
