/** A wait that takes this long has failed: several times what any takes on a machine that is busy. */
export const TIMEOUT_MS = 60000;
