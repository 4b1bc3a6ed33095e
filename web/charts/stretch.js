// Mode stretch: perplexity beyond the trained length, and passkey retrieval.
import {cell, pointer, ruleX, text, tip} from "@observablehq/plot";
import {curveMarks, data, element, framed, install, legend, scaleChoice, short, t} from "./common.js";

const panelsOf = (names, width, draw, title = (name) => name) => {
  const columns = Math.max(1, Math.min(names.length, Math.floor(width / 364)));
  const each = Math.floor((width - 24 * (columns - 1)) / columns);
  return element("div", {class: "panels"}, ...names.map((name) =>
    element("div", {}, element("h3", {}, title(name)), draw(name, each))));
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
      x: {type: "log", base: 2, label: t("chart.context"), ticks: lengths, tickFormat: (x) => `${x}`,
        domain: [Math.min(...lengths, trained) / 1.12, Math.max(...lengths, trained) * 1.12], tickRotate: lengths.length * 48 > each ? -40 : 0},
      y: {type: state.log ? "log" : "linear", label: t("chart.perplexity"), grid: true, tickFormat: (y) => short(y),
        domain: state.log ? [low / 1.12, high * 1.12] : [0, high * 1.05], ticks: 6},
      marks: [
        ruleX([trained], {stroke: "var(--faint)", strokeDasharray: "4 4"}),
        text([trained], {x: (x) => x, frameAnchor: "top", textAnchor: "start", dx: 5, dy: 2, text: () => t("chart.trained"), fill: "var(--faint)"}),
        ...curveMarks(labels.map((label) => ({label, points: here.filter((p) => p.label === label)})), toPixels,
          {x: "length", y: "value", radius: 3.2}),
        tip(here, pointer({x: "length", y: "value", title: (p) => `${p.label}\n${p.length} ${t("chart.tokens")}\n${t("chart.perplexity")} ${Number(p.value.toPrecision(5))}`})),
      ],
    });
  }, (reading) => data.words[`reading.${reading}`] ?? reading);
};

export const extrapolation = () => {
  if (!data.stretch || data.stretch.rows.length === 0) return;
  const state = {log: true, hidden: new Set()};
  const drawable = data.stretch.rows.filter((row) => row.perplexity.some((value) => value !== null));
  install("extrapolation", (redraw) => [
    scaleChoice(t("chart.perplexity"), true, (log) => { state.log = log; redraw(); }),
    legend(Array.from(new Set(drawable.map((row) => row.label))), state.hidden, redraw),
  ], (width) => drawExtrapolation(width, state));
};

export const passkey = () => {
  if (!data.stretch || data.stretch.passkey.length === 0) return;
  const cells = data.stretch.passkey;
  install("passkey", () => [], (width) => panelsOf(Array.from(new Set(cells.map((c) => c.label))), width, (label, each) => {
    const here = cells.filter((c) => c.label === label);
    const depths = new Set(here.map((c) => c.depth));
    return framed({
      width: each, height: 70 + 30 * depths.size, marginLeft: 64, padding: 0.04,
      x: {type: "band", label: t("chart.context"), tickFormat: (x) => `${x}`},
      y: {type: "band", label: t("chart.depth"), tickFormat: (y) => `${Math.round(100 * y)} %`},
      color: {type: "linear", scheme: "cividis", domain: [0, 1], unknown: "var(--grid)"},
      marks: [
        cell(here, {x: "length", y: "depth", fill: "accuracy", rx: 3}),
        text(here, {x: "length", y: "depth", text: (c) => (c.accuracy === null ? "–" : `${Math.round(100 * c.accuracy)}`),
          fill: (c) => (c.accuracy === null ? "var(--faint)" : c.accuracy < 0.6 ? "#fff" : "#111")}),
        tip(here, pointer({x: "length", y: "depth", title: (c) =>
          `${label}\n${c.length} ${t("chart.tokens")}, ${t("chart.depth")} ${Math.round(100 * c.depth)} %\n` +
          (c.accuracy === null ? t("chart.missing") : `${(100 * c.accuracy).toFixed(1)} % ${t("chart.found")}`)})),
      ],
    });
  }));
};
