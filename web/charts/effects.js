// Forest plot: each variant's difference to its reference with the 95 % confidence interval and the margin of equivalence.
import {dot, pointer, rect, ruleX, ruleY, text, tip} from "@observablehq/plot";
import {choice, data, framed, install, t} from "./common.js";

// Shapes differ as well as colours, for readers who do not see colours.
const STYLE = {
  "better": {colour: "var(--good)", symbol: "circle"},
  "worse": {colour: "var(--bad)", symbol: "square"},
  "no difference": {colour: "var(--accent)", symbol: "diamond"},
  "cannot tell": {colour: "var(--faint)", symbol: "triangle"},
};
const styleOf = (row) => STYLE[row.mark] ?? STYLE["cannot tell"];

const NARROW = 640;

const rowsOf = (state) => {
  const scaled = data.effects.map((e) => {
    const scale = state.relative && e.mean ? 100 / Math.abs(e.mean) : 1;
    const of = (value) => (value === null ? null : value * scale);
    const shown = state.relative && e.mean;
    const sign = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
    const interval = e.low === null ? "" : ` (${sign(of(e.low))} … ${sign(of(e.high))})`;
    return {...e, difference: of(e.difference), low: of(e.low), high: of(e.high), margin: of(e.margin),
      text: shown ? `${sign(of(e.difference))} %${interval}` : e.text};
  });
  if (state.order === "effect") scaled.sort((a, b) => a.difference - b.difference);
  return scaled.map((e, row) => ({...e, row}));
};

const labelWidth = (rows) => Math.min(260, Math.max(70, 16 + 8.4 * Math.max(...rows.map((r) => r.label.length))));
const cut = (label, width) => (8.4 * label.length <= width ? label : `${label.slice(0, Math.floor(width / 8.4) - 1)}…`);

// On a narrow screen the name is above its interval and the numbers and the verdict are below it.
const HALO = {stroke: "var(--paper)", strokeWidth: 4};
const texts = (rows, narrow, left) => {
  const verdict = (r) => [r.markText, r.p].filter((part) => part).join(", ");
  if (narrow) {
    return [
      text(rows, {y: "row", frameAnchor: "left", textAnchor: "start", dy: -25, text: "label", fontWeight: 600, fontSize: 13}),
      text(rows, {y: "row", frameAnchor: "left", textAnchor: "start", dy: 14, text: "text", fontSize: 12, ...HALO, fill: "currentColor"}),
      text(rows, {y: "row", frameAnchor: "left", textAnchor: "start", dy: 30, text: verdict, ...HALO, fill: "var(--faint)", fontSize: 12}),
    ];
  }
  return [
    text(rows, {y: "row", frameAnchor: "left", textAnchor: "end", dx: -14, text: (r) => cut(r.label, left), fontWeight: 600, fontSize: 13}),
    text(rows, {y: "row", frameAnchor: "right", textAnchor: "start", dx: 16, text: "text", fontSize: 13}),
    text(rows, {y: "row", frameAnchor: "right", textAnchor: "end", dx: 372, text: verdict, fill: "var(--faint)", fontSize: 12}),
  ];
};

const draw = (width, state) => {
  const rows = rowsOf(state);
  const narrow = width < NARROW;
  const step = narrow ? 84 : 36;
  const left = labelWidth(rows);
  const ends = rows.flatMap((r) => [r.low ?? r.difference, r.high ?? r.difference, -(r.margin ?? 0), r.margin ?? 0]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const room = 0.06 * (high - low || 1);
  const measured = rows.filter((r) => r.low !== null);
  const reference = t(`reference.${data.comparedWith}`);
  const unit = state.relative ? t("chart.unit.relative") : t("chart.difference_to", {reference});
  return framed({
    width, height: rows.length * step + 62, marginTop: 8, marginBottom: 50, marginLeft: narrow ? 8 : left + 14, marginRight: narrow ? 8 : 384,
    x: {label: `${t(`measure.${data.metric}`)}: ${unit}`, labelAnchor: "center", labelArrow: "none", labelOffset: 42, domain: [low - room, high + room],
      ticks: Math.max(3, Math.floor((width - (narrow ? 16 : left + 400)) / 80)), tickFormat: (x) => `${x < 0 ? "−" : ""}${Number(Math.abs(x).toPrecision(3))}`},
    y: {axis: null, domain: [rows.length - 0.5, -0.5], type: "linear"},
    marks: [
      rect(rows.filter((r) => r.margin !== null), {x1: (r) => -r.margin, x2: "margin", y1: (r) => r.row - 0.5, y2: (r) => r.row + 0.5,
        fill: "var(--margin)"}),
      ruleX([0], {stroke: "currentColor", strokeOpacity: 0.7}),
      ...measured.map((r) => ruleY([r], {y: "row", x1: "low", x2: "high", stroke: styleOf(r).colour, strokeWidth: 2.2})),
      ...rows.map((r) => dot([r], {x: "difference", y: "row", r: 6, fill: styleOf(r).colour, stroke: "var(--paper)", symbol: styleOf(r).symbol})),
      ...texts(rows, narrow, left),
      tip(rows, pointer({x: "difference", y: "row", title: (r) =>
        `${r.label} – ${r.reference}\n${r.text}\n${[r.markText, r.p].filter((part) => part).join(", ")}`})),
    ],
  });
};

export const effects = () => {
  const state = {relative: false, order: "study"};
  const shares = data.effects.every((e) => e.mean);
  install("effects", (redraw) => [
    ...(shares && !data.quality.percent ? [choice(t("chart.unit"), [["absolute", t("chart.unit.absolute")], ["relative", t("chart.unit.relative")]], "absolute",
      (value) => { state.relative = value === "relative"; redraw(); })] : []),
    ...(data.effects.length > 2 ? [choice(t("chart.order"), [["study", t("chart.order.study")], ["effect", t("chart.order.effect")]], "study",
      (value) => { state.order = value; redraw(); })] : []),
  ], (width) => draw(width, state));
};
