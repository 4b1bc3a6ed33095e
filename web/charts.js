// Interactive charts of a study's report. Draws with Observable Plot into the figures of src/lab/report/html.cpp.
// Before this script runs, or if it cannot run, a figure shows the same chart as an SVG image.
import {cost} from "./charts/cost.js";
import {curves} from "./charts/curves.js";
import {effects} from "./charts/effects.js";
import {scaling} from "./charts/scaling.js";
import {extrapolation, passkey} from "./charts/stretch.js";

effects();
curves();
scaling();
cost();
extrapolation();
passkey();
