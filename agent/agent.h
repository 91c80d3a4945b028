#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

/* Subcommands of this folder. */
int agent_main(int argc, char *argv[]); /* perch agent */
int proxy_main(int argc, char *argv[]); /* perch proxy */
int run_main(int argc, char *argv[]);   /* perch run */
int emit_main(int argc, char *argv[]);  /* perch emit */
int demo_main(int argc,
	      char *argv[]); /* perch demo-agent: a scripted ACP agent on stdio */

#endif
