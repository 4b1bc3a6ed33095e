// Saves figures as SVG and PNG files as they are shown: title, legend of the shown variants, charts in the page's colours.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const FONT = 'system-ui, "Segoe UI", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "DejaVu Sans", Helvetica, Arial, sans-serif';
  // Presentation attributes that the style sheet may set. A saved file has no style sheet.
  const COPIED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-dashoffset",
    "opacity", "font-size", "font-weight", "text-anchor", "visibility"];
  const PADDING = 16;

  const make = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const copyOf = (svg) => {
    const copy = svg.cloneNode(true);
    const originals = [svg, ...svg.querySelectorAll("*")];
    const copies = [copy, ...copy.querySelectorAll("*")];
    originals.forEach((original, i) => {
      const style = getComputedStyle(original);
      for (const name of COPIED) {
        const value = style.getPropertyValue(name);
        if (value) copies[i].setAttribute(name, value);
      }
      copies[i].removeAttribute("style");
      copies[i].removeAttribute("class");
    });
    copy.querySelectorAll("style, [aria-label=tip], title").forEach((part) => part.remove());
    return copy;
  };

  const place = (svg, x, y) => {
    const box = svg.getBoundingClientRect();
    const copy = copyOf(svg);
    for (const [name, value] of Object.entries({x, y, width: box.width, height: box.height})) copy.setAttribute(name, value);
    return copy;
  };

  // Appends the shown entries of the legend, in lines; returns the height.
  const addLegend = (whole, figure, width) => {
    let [x, y] = [0, 0];
    for (const button of figure.querySelectorAll(".legend button[aria-pressed=true]")) {
      const sample = button.querySelector("svg");
      const label = button.lastChild.textContent;  // the sample has texts of its own: a style sheet
      const wide = 30 + 8 + 7.4 * label.length + 18;
      if (x > 0 && x + wide > width) [x, y] = [0, y + 22];
      whole.append(place(sample, PADDING + x, PADDING + 30 + y));
      whole.append(make("text", {x: PADDING + x + 38, y: PADDING + 30 + y + 10, "font-size": 12.5, fill: colour("--ink")}, label));
      x += wide;
    }
    return x > 0 ? y + 28 : 0;
  };

  const wholeOf = (figure) => {
    const chart = figure.querySelector(".chart");
    const outer = chart.getBoundingClientRect();
    const [width, height] = [chart.scrollWidth, chart.scrollHeight];
    const whole = make("svg", {xmlns: SVG, "font-family": FONT});
    const back = make("rect", {fill: colour("--paper")});
    whole.append(back, make("text", {x: PADDING, y: PADDING + 14, "font-size": 17, "font-weight": 600, fill: colour("--ink")}, figure.dataset.title));
    const top = PADDING + 30 + addLegend(whole, figure, width);
    const at = (element) => {
      const box = element.getBoundingClientRect();
      return [PADDING + box.left - outer.left + chart.scrollLeft, top + box.top - outer.top + chart.scrollTop];
    };
    for (const heading of chart.querySelectorAll("h3")) {
      const [x, y] = at(heading);
      whole.append(make("text", {x, y: y + 15, "font-size": 14, "font-weight": 600, fill: colour("--ink")}, heading.textContent));
    }
    for (const svg of chart.querySelectorAll("svg")) {
      if (!svg.parentElement.closest("svg")) whole.append(place(svg, ...at(svg)));
    }
    const size = {width: width + 2 * PADDING, height: height + top + PADDING};
    for (const [name, value] of Object.entries(size)) {
      whole.setAttribute(name, value);
      back.setAttribute(name, value);
    }
    whole.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    return {text: new XMLSerializer().serializeToString(whole), ...size};
  };

  const download = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // Twice the size on the screen, for slides.
  const pngOf = async ({text, width, height}) => {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(2 * width), Math.round(2 * height)];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  };

  for (const button of document.querySelectorAll("button[data-save]")) {
    const figure = button.closest("figure");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const whole = wholeOf(figure);
      const png = button.dataset.save === "png";
      const blob = png ? await pngOf(whole) : new Blob([whole.text], {type: "image/svg+xml"});
      download(blob, `${figure.dataset.chart}.${button.dataset.save}`);
    });
  }
})();
