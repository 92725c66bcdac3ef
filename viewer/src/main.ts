/** Starts the page. */

import "./theme.css";
import { App } from "./app";
import { startTheme } from "./theme";

startTheme();
new App().start();
