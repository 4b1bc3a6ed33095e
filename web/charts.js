// Interactive charts of a study's report. Draws with Observable Plot into the figures of src/lab/report_html.cpp.
// Before this script runs, or if it cannot run, a figure shows the same chart as an SVG image.
import {areaY, cell, dot, line, plot, pointer, ruleX, ruleY, text, tip} from "@observablehq/plot";

const data = JSON.parse(document.getElementById("chart-data").textContent);
const COLOURS = 7;  // --c0 … --c6 in report.css
// Same as train::chart_style: when the colours repeat, the dashes and the marker change.
const DASHES = [undefined, "7 4", "2 3", "9 3 2 3"];
const MARKERS = ["circle", "square", "triangle", "diamond"];

const placeOf = (label) => Math.max(data.labels.indexOf(label), 0);
const roundOf = (label) => Math.floor(placeOf(label) / COLOURS) % DASHES.length;
const colourOf = (label) => `var(--c${placeOf(label) % COLOURS})`;
const dashOf = (label) => DASHES[roundOf(label)];
const markerOf = (label) => MARKERS[roundOf(label)];

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const short = (value, digits = 4) => {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(digits))}${unit}`;
  }
  return `${Number(value.toPrecision(digits))}`;
};
// Formats with enough digits to distinguish the two ends of a scale.
const formatFor = (style, low, high) => {
  const digits = Math.min(12, 3 + Math.max(0, Math.ceil(Math.log10(Math.abs(high) / (high - low || Math.abs(high) || 1)))));
  return (value) => `${short(value, digits)}${style === "bytes" ? "B" : ""}`;
};
const quality = (value) => (data.quality.percent ? `${(100 * value).toFixed(1)} %` : value.toFixed(4));

// ---- controls

const choice = (name, options, chosen, changed) => {
  const select = element("select", {"aria-label": name}, ...options.map(([value, title]) => {
    const option = element("option", {value}, title);
    option.selected = value === chosen;
    return option;
  }));
  select.addEventListener("change", () => changed(select.value));
  return element("label", {}, name, select);
};

const sample = (label) => {
  const drawn = plot({width: 30, height: 12, margin: 0, axis: null, x: {domain: [0, 30]}, y: {domain: [0, 12]}, marks: [
    line([[0, 6], [30, 6]], {x: "0", y: "1", stroke: colourOf(label), strokeWidth: 2.4, strokeDasharray: dashOf(label)}),
    dot([[15, 6]], {x: "0", y: "1", r: 4, fill: colourOf(label), stroke: "var(--paper)", symbol: markerOf(label)}),
  ]});
  drawn.setAttribute("aria-hidden", "true");
  return drawn;
};

// One toggle button per label; pressed labels are shown.
const legend = (labels, hidden, changed) => {
  const buttons = labels.map((label) => {
    const button = element("button", {type: "button", "aria-pressed": !hidden.has(label)}, sample(label), label);
    button.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      button.setAttribute("aria-pressed", !hidden.has(label));
      changed();
    });
    return button;
  });
  return element("div", {class: "legend", role: "group", "aria-label": "Shown variants"}, ...buttons);
};

// Draws the chart now and again whenever the figure's width changes.
const install = (id, controlsOf, draw) => {
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

const framed = (options) => plot({className: "plot", marginLeft: 56, marginBottom: 42, style: {background: "none"}, ...options});

// ---- curves

// Finds overlapping curves, as train::overlaps_of: equal x, and y within 2.5 pixels at two thirds of the points or more.
// `curves` are lists of [x, y] with y in pixels. Returns each curve's index among those that overlap, and their count.
const overlapsOf = (curves) => {
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

// Lines with markers. Of overlapping curves the first is solid; each other one is dashed and covers its own share.
// `inside` tells whether a value lies in the frame.
const curveMarks = (curves, toPixels, {x, y, radius, inside = () => true}) => {
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

// ---- loss curves

const drawCurves = (width, state) => {
  const bands = data[state.losses].filter((band) => !state.hidden.has(band.label))
    .map(({label, points}) => ({label, points: state.log ? points.filter(([x]) => x > 0) : points}))
    .filter((band) => band.points.length > 0);
  const every = bands.flatMap(({label, points}) => points.map(([x, mean, low, high]) => ({label, x, mean, low, high})));
  // The first losses are far above the rest, so with 100 points or more the highest 2 % may lie outside the chart.
  const from = state.end ? 0.4 * Math.max(...every.map((p) => p.x)) : 0;
  const seen = every.filter((p) => p.x >= from);
  const sorted = seen.map((p) => p.mean).sort((a, b) => a - b);
  const top = sorted.length < 100 ? Math.max(...seen.map((p) => p.high)) : sorted[Math.floor(0.98 * (sorted.length - 1))];
  const bottom = Math.min(...seen.map((p) => p.low));
  const room = 0.04 * Math.max(top - bottom, 1e-6);
  const height = Math.max(320, Math.min(460, width * 0.5));
  const domain = seen.length ? [bottom - room, top + room] : [0, 1];
  const toPixels = (loss) => loss * (height - 70) / (domain[1] - domain[0]);
  const target = data.target !== null && data.target >= domain[0] && data.target <= domain[1];
  return framed({
    width, height, insetLeft: 6, insetRight: 6, marginRight: target ? 54 : 20,
    x: {label: "step", type: state.log ? "log" : "linear", tickFormat: (x) => short(x), nice: false},
    y: {label: `${state.losses} loss`, grid: true, domain},
    marks: [
      ...bands.map(({label, points}) =>
        areaY(points, {x: "0", y1: "2", y2: "3", fill: colourOf(label), fillOpacity: Math.min(0.18, 1.2 / bands.length), clip: true})),
      // The target's name is in the margin, where no curve can cross it.
      ...(target ? [
        ruleY([data.target], {stroke: "var(--faint)", strokeDasharray: "4 4"}),
        text([data.target], {y: (y) => y, frameAnchor: "right", textAnchor: "start", dx: 8, text: () => "target",
          fill: "var(--faint)"}),
      ] : []),
      ...curveMarks(bands, toPixels, {x: "0", y: "1", radius: 3, inside: (loss) => loss >= domain[0] && loss <= domain[1]}),
      tip(every, pointer({x: "x", y: "mean", title: (p) =>
        `${p.label}\nstep ${p.x}\n${p.mean.toFixed(4)} ± ${((p.high - p.low) / 2).toFixed(4)}`})),
    ],
  });
};

const curves = () => {
  const state = {losses: data.validation.length ? "validation" : "training", log: false, end: false, hidden: new Set()};
  install("curves", (redraw) => [
    ...(data.validation.length && data.training.length
      ? [choice("Loss", [["validation", "validation"], ["training", "training"]], state.losses,
          (value) => { state.losses = value; redraw(); })] : []),
    choice("Steps", [["linear", "linear"], ["log", "logarithmic"]], "linear",
      (value) => { state.log = value === "log"; redraw(); }),
    choice("Shown", [["all", "all"], ["end", "the end, closer"]], "all", (value) => { state.end = value === "end"; redraw(); }),
    legend(Array.from(new Set([...data.validation, ...data.training].map((band) => band.label))), state.hidden, redraw),
  ], (width) => drawCurves(width, state));
};

// ---- quality against cost

// Whether the labels are few and short enough to be next to their points. Otherwise only the legend names them.
const fitBesidePoints = (points, width) => points.length <= 8 && points.every((p) => 6.6 * p.label.length < 0.3 * width);

// Coincident points get smaller radii, so that a ring of each point below stays visible.
const radii = (points, apart) => points.map((p, i) => Math.max(2, 6.5 - 2 * points.slice(0, i).filter((q) => apart(p, q) < 3).length));

// Places labels next to their points and moves them down if they would overlap.
const labelMarks = (points, chart, width) => {
  const [x, y] = [chart.scale("x"), chart.scale("y")];
  const placed = [];
  return points.map((p) => ({p, px: x.apply(p.cost), py: y.apply(p.quality)})).sort((a, b) => a.py - b.py)
    .map(({p, px, py}) => {
      const wide = 6.6 * p.label.length;
      const before = px + 10 + wide > width - 4;
      const left = before ? px - 10 - wide : px + 10;
      let at = py;
      for (let moved = true; moved;) {
        moved = false;
        for (const other of placed) {
          if (left < other.left + other.wide && other.left < left + wide && Math.abs(at - other.at) < 14) {
            at = other.at + 14;
            moved = true;
          }
        }
      }
      placed.push({left, wide, at});
      return text([p], {x: "cost", y: "quality", text: "label", textAnchor: before ? "end" : "start", dx: before ? -10 : 10,
        dy: at - py, fill: "currentColor"});
    });
};

const drawCost = (width, state) => {
  const whole = data.costs.find((cost) => cost.key === state.key);
  const chosen = {...whole, points: whole.points.filter((p) => !state.hidden.has(p.label))};
  if (chosen.points.length === 0) return element("p", {class: "note"}, "Every variant is hidden.");
  const spread = (p) => p.spread ?? 0;
  const reach = chosen.points.flatMap((p) => [p.quality - spread(p), p.quality + spread(p)]);
  const [low, high] = [Math.min(...reach), Math.max(...reach)];
  const room = 0.08 * (high - low || Math.abs(high) || 1);
  const costs = chosen.points.map((p) => p.cost);
  const [cheap, dear] = [Math.min(...costs), Math.max(...costs)];
  const log = state.log && cheap > 0;
  const height = Math.max(320, Math.min(440, width * 0.46));
  const position = (p) => [(width - 84) * (p.cost - cheap) / (dear - cheap || 1), (height - 70) * (p.quality - low) / (high - low || 1)];
  const apart = (p, q) => Math.max(...position(p).map((at, i) => Math.abs(at - position(q)[i])));
  const radius = radii(chosen.points, apart);
  const aside = log ? (dear / cheap) ** 0.06 : 0.06 * (dear - cheap);
  const options = {
    width, height, marginLeft: 64,
    x: {label: chosen.title, type: log ? "log" : "linear", tickFormat: formatFor(chosen.style, cheap, dear), ticks: Math.max(3, Math.floor(width / 130)),
      domain: log ? [cheap / aside, dear * aside] : [cheap - aside, dear + aside]},
    y: {label: `${data.quality.title} (${data.quality.lowerIsBetter ? "lower" : "higher"} is better)`, grid: true,
      domain: [low - room, high + room], tickFormat: data.quality.percent ? (y) => `${Math.round(100 * y)} %` : undefined},
    marks: [
      ...chosen.points.map((p) => ruleX([p], {x: "cost", y1: p.quality - spread(p), y2: p.quality + spread(p),
        stroke: colourOf(p.label), strokeWidth: 1.6})),
      ...chosen.points.map((p, i) => dot([p], {x: "cost", y: "quality", r: radius[i], fill: colourOf(p.label), stroke: "var(--paper)",
        symbol: markerOf(p.label)})),
      tip(chosen.points, pointer({x: "cost", y: "quality", title: (p) =>
        `${p.label}\n${chosen.title}: ${p.costText}\n${data.quality.title}: ${quality(p.quality)}` +
        (p.spread === null ? "" : ` ± ${quality(p.spread)}`)})),
    ],
  };
  if (!fitBesidePoints(chosen.points, width)) return framed(options);
  return framed({...options, marks: [...labelMarks(chosen.points, framed(options), width), ...options.marks]});
};

const cost = () => {
  if (data.costs.length === 0) return;
  const state = {key: data.costs[0].key, log: false, hidden: new Set()};
  install("cost", (redraw) => [
    choice("Cost", data.costs.map(({key, title}) => [key, title]), state.key, (value) => { state.key = value; redraw(); }),
    choice("Scale", [["linear", "linear"], ["log", "logarithmic"]], "linear",
      (value) => { state.log = value === "log"; redraw(); }),
    legend(Array.from(new Set(data.costs.flatMap(({points}) => points.map((p) => p.label)))), state.hidden, redraw),
  ], (width) => drawCost(width, state));
};

// ---- beyond the trained length

const panelsOf = (names, width, draw) => {
  const columns = Math.max(1, Math.min(names.length, Math.floor(width / 364)));
  const each = Math.floor((width - 24 * (columns - 1)) / columns);
  return element("div", {class: "panels"}, ...names.map((name) =>
    element("div", {}, element("h3", {}, name), draw(name, each))));
};

const drawExtrapolation = (width, state) => {
  const {rows, lengths, trained} = data.stretch;
  const points = rows.filter((row) => !state.hidden.has(row.label)).flatMap(({label, reading, perplexity}) =>
    perplexity.map((value, i) => ({label, reading, length: lengths[i], value})).filter((p) => p.value !== null && p.value > 0));
  const values = points.map((p) => p.value);
  const [low, high] = points.length ? [Math.min(...values), Math.max(...values)] : [1, 10];
  return panelsOf(Array.from(new Set(rows.map((row) => row.reading))), width, (reading, each) => {
    const here = points.filter((p) => p.reading === reading);
    const labels = Array.from(new Set(here.map((p) => p.label)));
    const toPixels = (value) => 270 * (state.log ? Math.log(value) / Math.log(1.25 * high / low) : value / (1.05 * high));
    return framed({
      width: each, height: 340,
      x: {type: "log", base: 2, label: "tokens in the context", ticks: lengths, tickFormat: (x) => `${x}`,
        domain: [Math.min(...lengths, trained) / 1.12, Math.max(...lengths, trained) * 1.12], tickRotate: lengths.length * 48 > each ? -40 : 0},
      y: {type: state.log ? "log" : "linear", label: "perplexity", grid: true, tickFormat: (y) => short(y),
        domain: state.log ? [low / 1.12, high * 1.12] : [0, high * 1.05], ticks: 6},
      marks: [
        ruleX([trained], {stroke: "var(--faint)", strokeDasharray: "4 4"}),
        text([trained], {x: (x) => x, frameAnchor: "top", textAnchor: "start", dx: 5, dy: 2, text: () => "trained", fill: "var(--faint)"}),
        ...curveMarks(labels.map((label) => ({label, points: here.filter((p) => p.label === label)})), toPixels,
          {x: "length", y: "value", radius: 3.2}),
        tip(here, pointer({x: "length", y: "value", title: (p) => `${p.label}\n${p.length} tokens\nperplexity ${Number(p.value.toPrecision(5))}`})),
      ],
    });
  });
};

const extrapolation = () => {
  if (!data.stretch || data.stretch.rows.length === 0) return;
  const state = {log: true, hidden: new Set()};
  const drawable = data.stretch.rows.filter((row) => row.perplexity.some((value) => value !== null));
  install("extrapolation", (redraw) => [
    choice("Perplexity", [["log", "logarithmic"], ["linear", "linear"]], "log",
      (value) => { state.log = value === "log"; redraw(); }),
    legend(Array.from(new Set(drawable.map((row) => row.label))), state.hidden, redraw),
  ], (width) => drawExtrapolation(width, state));
};

const passkey = () => {
  if (!data.stretch || data.stretch.passkey.length === 0) return;
  const cells = data.stretch.passkey;
  install("passkey", () => [], (width) => panelsOf(Array.from(new Set(cells.map((c) => c.label))), width, (label, each) => {
    const here = cells.filter((c) => c.label === label);
    const depths = new Set(here.map((c) => c.depth));
    return framed({
      width: each, height: 70 + 30 * depths.size, marginLeft: 64, padding: 0.04,
      x: {type: "band", label: "tokens in the context", tickFormat: (x) => `${x}`},
      y: {type: "band", label: "depth of the key", tickFormat: (y) => `${Math.round(100 * y)} %`},
      color: {type: "linear", scheme: "cividis", domain: [0, 1], unknown: "var(--grid)"},
      marks: [
        cell(here, {x: "length", y: "depth", fill: "accuracy", rx: 3}),
        text(here, {x: "length", y: "depth", text: (c) => (c.accuracy === null ? "–" : `${Math.round(100 * c.accuracy)}`),
          fill: (c) => (c.accuracy === null ? "var(--faint)" : c.accuracy < 0.6 ? "#fff" : "#111")}),
        tip(here, pointer({x: "length", y: "depth", title: (c) =>
          `${label}\n${c.length} tokens, depth ${Math.round(100 * c.depth)} %\n` +
          (c.accuracy === null ? "not measured" : `${(100 * c.accuracy).toFixed(1)} % found`)})),
      ],
    });
  }));
};

curves();
cost();
extrapolation();
passkey();
