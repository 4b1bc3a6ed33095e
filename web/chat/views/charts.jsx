// Small charts: SVG elements and canvases, in the colours of the theme.
import {useEffect, useRef, useState} from "preact/hooks";
import {theme} from "../lib/state.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => (theme.value ? theme.value === "dark" : DARK.matches);

/** True in the dark theme; redraws when the system's changes. */
export const useDark = () => {
  const [dark, setDark] = useState(isDark());
  useEffect(() => {
    const changed = () => setDark(isDark());
    changed();
    DARK.addEventListener("change", changed);
    return () => DARK.removeEventListener("change", changed);
  }, [theme.value]);
  return dark;
};

// One hue whose lightness grows or falls steadily, so the order shows without seeing colours.
const RAMPS = {
  light: [[255, 255, 255], [205, 224, 242], [120, 178, 219], [40, 116, 178], [8, 48, 107]],
  dark: [[24, 29, 37], [33, 82, 132], [58, 142, 198], [146, 206, 243], [242, 250, 255]],
};
const colourAt = (ramp, value) => {
  const place = Math.min(1, Math.max(0, value)) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[low].map((part, index) => Math.round(part + (place - low) * (ramp[low + 1][index] - part)));
};

/**
 * Rows of numbers in [0, 1] as a picture with one pixel per number, scaled up without smoothing. `onPoint(row, column)` is
 * called under the pointer, and with (-1, -1) when it leaves.
 */
export const HeatMap = ({rows, columns, label, onPoint, onClick, mark = -1, stretch = false}) => {
  const canvas = useRef(null);
  const dark = useDark();
  const [width, height] = [columns, rows.length];
  useEffect(() => {
    const context = canvas.current.getContext("2d");
    const image = context.createImageData(width, height);
    const ramp = RAMPS[dark ? "dark" : "light"];
    for (let y = 0; y < height; ++y) {
      for (let x = 0; x < width; ++x) {
        const known = x < rows[y].length;
        // Square root: most weights are small, and differences among them matter.
        const [r, g, b] = colourAt(ramp, known ? Math.sqrt(rows[y][x]) : 0);
        image.data.set([r, g, b, known ? 255 : 90], 4 * (y * width + x));
      }
    }
    context.putImageData(image, 0, 0);
  }, [rows, dark]);
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const place = (offset, size, count) => Math.min(count - 1, Math.max(0, Math.floor(offset / size * count)));
    return [place(event.clientY - box.top, box.height, height), place(event.clientX - box.left, box.width, width)];
  };
  return (
    <div class={`heat ${stretch ? "stretch" : ""}`}>
      <canvas ref={canvas} width={width} height={height} role="img" aria-label={label}
        onPointerMove={onPoint && ((event) => onPoint(...at(event)))} onPointerLeave={onPoint && (() => onPoint(-1, -1))}
        onClick={onClick && ((event) => onClick(...at(event)))} />
      {mark >= 0 ? <i class="mark-row" style={{top: `${100 * mark / height}%`, height: `${100 / height}%`}} /> : null}
    </div>
  );
};

/** A line over the last `most` values, scaled to the largest. */
export const Sparkline = ({values, most, label}) => {
  const top = Math.max(1, ...values);
  const points = values.map((value, index) => `${(most - values.length + index) * 4},${(58 - 52 * value / top).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${(most - 1) * 4} 60`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 ? <polygon class="area" points={`${points.join(" ")} ${(most - 1) * 4},60 ${(most - values.length) * 4},60`} /> : null}
      {points.length > 1 ? <polyline class="line" points={points.join(" ")} /> : null}
    </svg>
  );
};

/**
 * One bar per token. `title(index)` describes it; `mark` is drawn in another colour.
 * @param {{values: (number|null)[], unit: string, label: string, mark?: number, onPick?: (index: number) => void}} props
 */
export const Bars = ({values, unit, label, title, mark = -1, onPick, start = 0}) => {
  const top = Math.max(1e-6, ...values.map((value) => value ?? 0));
  return (
    <div class="bars-frame">
      <span class="scale">{top < 0.01 ? top.toExponential(1) : top.toFixed(2)} {unit}</span>
      <div class="bars" role="img" aria-label={label}>
        {values.map((value, index) => (
          <i key={index} class={index === mark ? "marked" : index < start ? "before" : ""} title={title(index)} onClick={onPick && (() => onPick(index))}>
            <b style={{height: `${value === null ? 0 : Math.max(1, 100 * value / top)}%`}} />
          </i>
        ))}
      </div>
    </div>
  );
};
