#ifndef OBSERVER_HTTP_API_H
#define OBSERVER_HTTP_API_H

#include "observer/archive.h"
#include "observer/controls.h"
#include "observer/http/http.h"
#include "observer/history.h"
#include "observer/http/hub.h"
#include "observer/model.h"
#include "wire/host/tls.h"

/* The local API and the page: who may ask, and who answers what. */
struct api;

#define API_TOKEN_LEN 43 /* characters: 32 random bytes as base64url */

struct api_options {
	struct model *model; /* borrowed, like all here */
	struct archive *archive;
	struct controls *controls;
	struct hub *hub;
	struct spans *spans;
	struct history *history;
	const char *token; /* API_TOKEN_LEN characters; copied */
	const char *host;  /* the address listened on, as in a URL */
	/* What controls are dated by, Unix ms. */
	int64_t (*control_ms)(void *ctx);
	/* Asks for another token to be made and kept; the new one. */
	const char *(*rotate)(void *ctx);
	/* Appends {"url":…} with the token: what `perch open` prints. */
	void (*write_url)(void *ctx, struct buf *out);
	/* Appends all figures in Prometheus' text format. */
	void (*write_metrics)(void *ctx, struct buf *out);
	/* Starts the demo agent. */
	bool (*play_demo)(void *ctx, struct err *err);
	void *ctx;
};

struct api *api_create(const struct api_options *options);
void api_destroy(struct api *api);
/* The port is known only after listening. */
void api_set_port(struct api *api, uint16_t port);
/* Where HTTP/2 listens, and the certificate that says under which names; borrowed. */
void api_set_tls(struct api *api, const struct tls *tls, uint16_t port);
/* What servers hand requests to. */
struct http_handler api_handler(struct api *api);

#endif
