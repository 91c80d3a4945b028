/* The page of a replay: first what it holds, then the page that shows it. */

import "./replay";
import "./main";
