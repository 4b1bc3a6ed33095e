// Shared by all charts: the data, texts, colours, number formats, controls, and how a figure is drawn and redrawn.
import {dot, line, plot} from "@observablehq/plot";

export const data = JSON.parse(document.getElementById("chart-data").textContent);
export const COLOURS = 7;  // --c0 … --c6 in report.css
// Same as train::chart_style: when the colours repeat, the dashes and the marker change.
export const DASHES = [undefined, "7 4", "2 3", "9 3 2 3"];
export const MARKERS = ["circle", "square", "triangle", "diamond"];

export const placeOf = (label) => Math.max(data.labels.indexOf(label), 0);
export const roundOf = (label) => Math.floor(placeOf(label) / COLOURS) % DASHES.length;
export const colourOf = (label) => `var(--c${placeOf(label) % COLOURS})`;
export const dashOf = (label) => DASHES[roundOf(label)];
export const markerOf = (label) => MARKERS[roundOf(label)];

export const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

export const short = (value, digits = 4) => {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(digits))}${unit}`;
  }
  return `${Number(value.toPrecision(digits))}`;
};
// Formats with enough digits to distinguish the two ends of a scale.
export const formatFor = (style, low, high) => {
  const digits = Math.min(12, 3 + Math.max(0, Math.ceil(Math.log10(Math.abs(high) / (high - low || Math.abs(high) || 1)))));
  return (value) => `${short(value, digits)}${style === "bytes" ? "B" : ""}`;
};
export const quality = (value) => (data.quality.percent ? `${(100 * value).toFixed(1)} %` : value.toFixed(4));

// Texts come from presets/words, in the language of the report.
export const t = (key, values = {}) => {
  const text = data.words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
};

export const choice = (name, options, chosen, changed) => {
  const select = element("select", {"aria-label": name}, ...options.map(([value, title]) => {
    const option = element("option", {value}, title);
    option.selected = value === chosen;
    return option;
  }));
  select.addEventListener("change", () => changed(select.value));
  return element("label", {}, name, select);
};

export const sample = (label) => {
  const drawn = plot({width: 30, height: 12, margin: 0, axis: null, x: {domain: [0, 30]}, y: {domain: [0, 12]}, marks: [
    line([[0, 6], [30, 6]], {x: "0", y: "1", stroke: colourOf(label), strokeWidth: 2.4, strokeDasharray: dashOf(label)}),
    dot([[15, 6]], {x: "0", y: "1", r: 4, fill: colourOf(label), stroke: "var(--paper)", symbol: markerOf(label)}),
  ]});
  drawn.setAttribute("aria-hidden", "true");
  return drawn;
};

export const toggle = (name, on, changed) => {
  const box = element("input", {type: "checkbox"});
  box.checked = on;
  box.addEventListener("change", () => changed(box.checked));
  return element("label", {}, box, name);
};

export const scaleChoice = (name, chosen, changed) => choice(name, [["linear", t("chart.linear")], ["log", t("chart.log")]],
  chosen ? "log" : "linear", (value) => changed(value === "log"));

// One toggle button per label; pressed labels are shown.
export const legend = (labels, hidden, changed) => {
  const buttons = labels.map((label) => {
    const button = element("button", {type: "button", "aria-pressed": !hidden.has(label)}, sample(label), label);
    button.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      button.setAttribute("aria-pressed", !hidden.has(label));
      changed();
    });
    return button;
  });
  return element("div", {class: "legend", role: "group", "aria-label": t("chart.variants")}, ...buttons);
};

// The height of a chart: as wanted, but on a slide what fits on the screen beside the title, the legend and the caption.
export const heightOf = (id, wanted) => {
  if (!document.documentElement.classList.contains("slides")) return wanted;
  const zoom = Number(getComputedStyle(document.querySelector(`figure[data-chart="${id}"] .chart`)).zoom) || 1;
  return Math.max(200, Math.min(wanted, 0.58 * window.innerHeight / zoom));
};

// Draws the chart now and again whenever the figure's width changes.
export const install = (id, controlsOf, draw) => {
  const figure = document.querySelector(`figure[data-chart="${id}"]`);
  if (!figure) return;
  const chart = figure.querySelector(".chart");
  const redraw = () => chart.replaceChildren(draw(Math.max(chart.clientWidth, 300)));
  figure.querySelector(".controls").append(...controlsOf(redraw));
  redraw();
  chart.dataset.drawn = "script";
  let width = chart.clientWidth;
  new ResizeObserver(() => {
    if (chart.clientWidth === width) return;
    width = chart.clientWidth;
    redraw();
  }).observe(chart);
};

export const framed = (options) => plot({className: "plot", marginLeft: 56, marginBottom: 42, style: {background: "none"}, ...options});

// Lines with markers, shared by learning curves and perplexities.

// Finds overlapping curves, as train::overlaps_of: equal x, and y within 2.5 pixels at two thirds of the points or more.
// `curves` are lists of [x, y] with y in pixels. Returns each curve's index among those that overlap, and their count.
export const overlapsOf = (curves) => {
  const groups = [];
  const coincide = (a, b) => a.length > 0 && a.length === b.length && a.every(([x], i) => x === b[i][0]) &&
    3 * a.filter(([, y], i) => Math.abs(y - b[i][1]) <= 2.5).length >= 2 * a.length;
  const found = curves.map((curve) => {
    const group = groups.find((each) => coincide(each.first, curve)) ?? {first: curve, count: 0};
    if (group.count === 0) groups.push(group);
    return {index: group.count++, group};
  });
  return found.map(({index, group}) => ({index, count: group.count}));
};

// Lines with markers. If curves overlap, the first is solid and the others are dashed, so that all stay visible.
// `inside` tells whether a value lies in the frame.
export const curveMarks = (curves, toPixels, {x, y, radius, inside = () => true}) => {
  const DASH = 9;
  const overlaps = overlapsOf(curves.map(({points}) => points.map((p) => [p[x], toPixels(p[y])])));
  const dashes = (label, {index, count}) => (count === 1 ? {strokeDasharray: dashOf(label)} : index === 0 ? {}
    : {strokeDasharray: `${DASH} ${DASH * (count - 1)}`, strokeDashoffset: DASH * (count - index)});
  return [
    ...curves.map(({label, points}, i) => line(points, {x, y, curve: "linear", clip: true, stroke: colourOf(label),
      strokeWidth: 2, ...dashes(label, overlaps[i])})),
    ...curves.map((curve, i) => ({...curve, ...overlaps[i]})).filter(({points}) => points.length <= 40)
      .map(({label, points, index, count}) => dot(points.filter((p, i) => i % count === index && inside(p[y])),
        {x, y, r: radius, fill: colourOf(label), symbol: markerOf(label)})),
  ];
};
