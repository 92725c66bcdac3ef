/** Starts the page. */

import "./theme.css";
import { App } from "./app";
import { startTheme } from "./theme";
import { takeToken } from "./token";

takeToken();
startTheme();
new App().start();
