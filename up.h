#ifndef UP_H
#define UP_H

/* perch up: relay, observer and agent here, as children of this process that die with it.
 */
int up_main(int argc, char *argv[]);

#endif
