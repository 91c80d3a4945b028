#ifndef OBSERVER_OBSERVER_H
#define OBSERVER_OBSERVER_H

/* Subcommands of this folder. */
int observer_main(int argc, char *argv[]); /* perch observer */
int open_main(int argc, char *argv[]);
int tail_main(int argc, char *argv[]);
int ls_main(int argc, char *argv[]);
int prompt_main(int argc, char *argv[]);
int approve_main(int argc, char *argv[]);
int key_main(int argc, char *argv[]);
int attest_main(int argc, char *argv[]);
int invite_main(int argc, char *argv[]);
int export_main(int argc, char *argv[]);
int forget_main(int argc, char *argv[]);
int search_main(int argc, char *argv[]);
int doctor_main(int argc, char *argv[]);

#endif
