#include "agent/demo_script.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

#define GREEN "\x1b[32m"
#define RED "\x1b[31m"
#define BOLD "\x1b[1m"
#define DIM "\x1b[2m"
#define PLAIN "\x1b[0m"

#define ROUTER_BEFORE \
	"#include \"router.h\"\n" \
	"\n" \
	"int route_request(struct request *req)\n" \
	"{\n" \
	"\tstruct handler *handler = find_handler(req->path);\n" \
	"\n" \
	"\tif (!handler)\n" \
	"\t\treturn respond(req, 404);\n" \
	"\treturn handler->run(req);\n" \
	"}\n"

#define ROUTER_AFTER \
	"#include \"bucket.h\"\n" \
	"#include \"router.h\"\n" \
	"\n" \
	"int route_request(struct request *req)\n" \
	"{\n" \
	"\tstruct handler *handler = find_handler(req->path);\n" \
	"\n" \
	"\tif (!bucket_take(&req->client->bucket, req->now_ms))\n" \
	"\t\treturn respond(req, 429);\n" \
	"\tif (!handler)\n" \
	"\t\treturn respond(req, 404);\n" \
	"\treturn handler->run(req);\n" \
	"}\n"

#define BUCKET_FIRST \
	"#include \"bucket.h\"\n" \
	"\n" \
	"/* Ten requests a second, bursts of twenty. */\n" \
	"bool bucket_take(struct bucket *bucket, int64_t now_ms)\n" \
	"{\n" \
	"\tbucket->tokens += (now_ms - bucket->filled_ms) / 100;\n" \
	"\tbucket->filled_ms = now_ms;\n" \
	"\tif (bucket->tokens <= 0)\n" \
	"\t\treturn false;\n" \
	"\tbucket->tokens--;\n" \
	"\treturn true;\n" \
	"}\n"

#define BUCKET_SECOND \
	"#include \"bucket.h\"\n" \
	"\n" \
	"/* Ten requests a second, bursts of twenty. */\n" \
	"bool bucket_take(struct bucket *bucket, int64_t now_ms)\n" \
	"{\n" \
	"\tbucket->tokens += (now_ms - bucket->filled_ms) / 100;\n" \
	"\tif (bucket->tokens > 20)\n" \
	"\t\tbucket->tokens = 20;\n" \
	"\tbucket->filled_ms = now_ms;\n" \
	"\tif (bucket->tokens <= 0)\n" \
	"\t\treturn false;\n" \
	"\tbucket->tokens--;\n" \
	"\treturn true;\n" \
	"}\n"

static const struct demo_step code_steps[] = {
	{DEMO_THINK, 1800, NULL, NULL,
	 "The server answers as fast as it is asked. One noisy client can starve the "
	 "others, so "
	 "requests need a limit per client. A token bucket is the smallest thing that "
	 "allows "
	 "bursts. First: where do requests come in?",
	 0},
	{DEMO_PLAN, 300, NULL, NULL,
	 ">Find where requests come in\n.Write a token bucket\n.Refuse with 429 in the "
	 "router\n.Run the tests",
	 0},
	{DEMO_SEARCH, 900, "route_request", NULL,
	 "src/router.c:3: int route_request(struct request *req)\n"
	 "src/server.c:88: \tstatus = route_request(&req);",
	 0},
	{DEMO_READ, 800, "src/router.c", NULL, ROUTER_BEFORE, 0},
	{DEMO_USAGE, 100, NULL, NULL, NULL, 18400},
	{DEMO_PLAN, 300, NULL, NULL,
	 "xFind where requests come in\n>Write a token bucket\n.Refuse with 429 in the "
	 "router\n.Run the tests",
	 0},
	{DEMO_SAY, 1500, NULL, NULL,
	 "Every request passes `route_request()` in `src/router.c`, so that is the place "
	 "to "
	 "count. I will write the bucket first:\n\n- **ten** requests a second for each "
	 "client\n"
	 "- bursts of **twenty**\n- no timer: it fills by the time that has passed\n",
	 0},
	{DEMO_EDIT, 1200, "src/bucket.c", NULL, BUCKET_FIRST, 0},
	{DEMO_EDIT, 1200, "src/router.c", ROUTER_BEFORE, ROUTER_AFTER, 0},
	{DEMO_PLAN, 300, NULL, NULL,
	 "xFind where requests come in\nxWrite a token bucket\nxRefuse with 429 in the "
	 "router\n>Run the tests",
	 0},
	{DEMO_RUN_BAD, 2600, "make test", NULL,
	 BOLD "running 14 tests" PLAIN "\n" GREEN "  ok" PLAIN
	      "   router: unknown path is 404\n" GREEN "  ok" PLAIN
	      "   router: eleventh request in a second is 429\n" RED "  FAIL" PLAIN
	      " bucket: a burst is at most twenty\n" DIM
	      "         test/bucket_test.c:31: want 20, got 600\n" PLAIN "\n" RED
	      "13 passed, 1 failed" PLAIN "\nmake: *** [Makefile:22: test] Error 1\n",
	 0},
	{DEMO_USAGE, 100, NULL, NULL, NULL, 27900},
	{DEMO_THINK, 900, NULL, NULL,
	 "A client that was quiet for a minute has saved up 600 tokens: I forgot the "
	 "cap.",
	 0},
	{DEMO_SAY, 700, NULL, NULL,
	 "The test is right: after a quiet minute the bucket holds 600 tokens. It needs "
	 "a cap.\n",
	 0},
	{DEMO_EDIT, 1100, "src/bucket.c", BUCKET_FIRST, BUCKET_SECOND, 0},
	{DEMO_RUN, 2200, "make test", NULL,
	 BOLD "running 14 tests" PLAIN "\n" GREEN "  ok" PLAIN
	      "   router: unknown path is 404\n" GREEN "  ok" PLAIN
	      "   router: eleventh request in a second is 429\n" GREEN "  ok" PLAIN
	      "   bucket: a burst is at most twenty\n\n" GREEN "14 passed" PLAIN "\n",
	 0},
	{DEMO_PLAN, 300, NULL, NULL,
	 "xFind where requests come in\nxWrite a token bucket\nxRefuse with 429 in the "
	 "router\nxRun the tests\n>Rebuild from scratch",
	 0},
	{DEMO_ASK, 1800, "rm -rf build && make release", NULL,
	 "cc -O2 -c src/bucket.c\ncc -O2 -c src/router.c\ncc -o build/server\n" GREEN
	 "build/server: 148 KiB" PLAIN "\n",
	 0},
	{DEMO_PLAN, 200, NULL, NULL,
	 "xFind where requests come in\nxWrite a token bucket\nxRefuse with 429 in the "
	 "router\nxRun the tests\nxRebuild from scratch",
	 0},
	{DEMO_USAGE, 100, NULL, NULL, NULL, 31200},
	{DEMO_SAY, 1400, NULL, NULL,
	 "Done. Each client now gets **ten requests a second** with bursts of twenty; "
	 "beyond "
	 "that the router answers `429`. All 14 tests pass and the release build is "
	 "fresh.\n\n"
	 "| file | change |\n|---|---|\n| `src/bucket.c` | new |\n| `src/router.c` | +3 "
	 "|\n",
	 0},
};

static const struct demo_step code_denied[] = {
	{DEMO_USAGE, 100, NULL, NULL, NULL, 30100},
	{DEMO_SAY, 1200, NULL, NULL,
	 "Understood: I left `build/` alone. The limiter is in and all 14 tests pass; "
	 "when you "
	 "want a release build, run `make release`.\n",
	 0},
};

const struct demo_script demo_script_code = {
	.steps = code_steps,
	.count = COUNT(code_steps),
	.denied = code_denied,
	.denied_count = COUNT(code_denied),
};

#define INSTALL_BEFORE \
	"# Install\n\nDownload the archive, unpack it, run `./configure`.\n"

#define INSTALL_AFTER \
	"# Install\n\n```sh\ngit clone https://example.org/server.git\ncd " \
	"server\n./dev up\n" \
	"```\n\nThat installs what is missing and says so first.\n"

#define README_BEFORE "# Server\n\nA small HTTP server.\n"

#define README_AFTER \
	"# Server\n\nA small HTTP server. [Install it](docs/install.md) in two " \
	"commands.\n"

static const struct demo_step docs_steps[] = {
	{DEMO_THINK, 1400, NULL, NULL,
	 "The install page still speaks of ./configure, which was removed. A reader who "
	 "follows "
	 "it gets nowhere. Rewrite it around ./dev up and link it from the README.",
	 0},
	{DEMO_PLAN, 300, NULL, NULL,
	 ">Read the install page\n.Rewrite it\n.Link it from the README\n.Check the "
	 "links",
	 0},
	{DEMO_READ, 900, "docs/install.md", NULL, INSTALL_BEFORE, 0},
	{DEMO_USAGE, 100, NULL, NULL, NULL, 9100},
	{DEMO_EDIT, 1600, "docs/install.md", INSTALL_BEFORE, INSTALL_AFTER, 0},
	{DEMO_EDIT, 1200, "README.md", README_BEFORE, README_AFTER, 0},
	{DEMO_PLAN, 300, NULL, NULL,
	 "xRead the install page\nxRewrite it\nxLink it from the README\n>Check the "
	 "links",
	 0},
	{DEMO_RUN_BAD, 2400, "npx linkcheck docs", NULL,
	 "checking 41 links\n" GREEN "  40 fine" PLAIN "\n" RED
	 "  404  docs/faq.md:12  https://example.org/old-forum" PLAIN "\n",
	 0},
	{DEMO_SAY, 1600, NULL, NULL,
	 "The install page now has the two commands that work, and the README links to "
	 "it. One "
	 "link was broken before I came: `docs/faq.md` line 12 points at the old forum. "
	 "I did "
	 "not touch it; tell me where it should go.\n",
	 0},
	{DEMO_PLAN, 200, NULL, NULL,
	 "xRead the install page\nxRewrite it\nxLink it from the README\nxCheck the "
	 "links",
	 0},
	{DEMO_USAGE, 100, NULL, NULL, NULL, 14800},
};

const struct demo_script demo_script_docs = {
	.steps = docs_steps,
	.count = COUNT(docs_steps),
};

static const struct demo_step echo_steps[] = {
	{DEMO_THINK, 300, NULL, NULL, "A short question deserves a short answer.", 0},
	{DEMO_READ, 400, "README.md", NULL, README_AFTER, 0},
	{DEMO_ECHO, 600, NULL, NULL, NULL, 0},
	{DEMO_USAGE, 50, NULL, NULL, NULL, 32500},
};

const struct demo_script demo_script_echo = {
	.steps = echo_steps,
	.count = COUNT(echo_steps),
};
