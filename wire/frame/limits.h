#ifndef WIRE_FRAME_LIMITS_H
#define WIRE_FRAME_LIMITS_H

/* The limits of design §11, in one place; NIP-11, the documents and the tests quote
 * them. */

#define FRAME_KIND 24200
#define FRAME_PLAINTEXT_MAX 65408 /* bytes; as NIP44_PLAINTEXT_SEND_MAX */
#define FRAME_SUFFIX_MAX 68 /* bytes: ,"epoch":"<16 hex>","frame":N,"replayed":true */
#define FRAME_PACK_MAX (FRAME_PLAINTEXT_MAX - FRAME_SUFFIX_MAX) /* 65,340 */
#define FRAME_MERGE_MAX 60000 /* bytes of a merged chunk event */
#define FRAME_FRESH_S 300     /* created_at may differ from the clock by this much */
#define FRAME_NUMBER_MAX 9007199254740991 /* 2^53 - 1 */

#define RELAY_MESSAGE_MAX (256 * 1024) /* bytes of one WebSocket message */
#define RELAY_SUBS_MAX 64              /* per connection */
#define RELAY_CONNECTIONS_MAX 10000
#define RELAY_ADDRESS_MAX 64 /* connections from one address (not loopback) */
#define RELAY_AUTH_TIMEOUT_S 10
#define RELAY_READER_QUEUE_MAX (4u << 20) /* unsent bytes per reader */
#define RELAY_RETAINED_MAX (256u << 20)   /* unsent bodies in all */
#define RELAY_WINDOW_S 300
#define RELAY_WINDOW_OWNER_MAX (4u << 20)
#define RELAY_WINDOW_MAX (256u << 20)
#define RELAY_FRAMES_PER_S 100  /* per agent */
#define RELAY_LIMIT_DEFAULT 500 /* stored events that a filter without limit gives */
#define RELAY_LIMIT_MAX 5000    /* and one with a larger limit */
#define RELAY_AHEAD_S 900       /* created_at of stored kinds beyond the clock */

#define AGENT_LINE_MAX (64u << 20)  /* bytes of one ACP line */
#define AGENT_MIRROR_MAX (8u << 20) /* bytes of a line that the feed keeps */
#define AGENT_QUEUE_MAX (4u << 20)  /* all memory of waiting and in-flight events */
#define AGENT_IN_FLIGHT_MAX 8
#define AGENT_KEEP_S 300 /* acknowledged frames kept for `want` */
#define AGENT_KEEP_MAX (4u << 20)
#define AGENT_JOURNAL_MAX (256u << 20) /* sealed frames and bodies on disk */
#define AGENT_JOURNAL_DAYS 30
#define AGENT_PERMISSION_S 300
#define AGENT_PERMISSIONS_MAX 16 /* pending per agent */
#define AGENT_TICK_MS 1000
#define AGENT_LINGER_MS 20

#define CONTROL_EXPIRY_S 60 /* default: now + this */
#define CONTROL_TOLERANCE_S 30
#define CONTROL_REMEMBERED 65536       /* request ids, nonces, event ids of one epoch */
#define CONTROL_ANSWERS_MAX (1u << 20) /* bytes of the answers to them that are kept */
#define CONTROL_PER_S 10
#define CONTROL_ID_MAX 128 /* bytes of a type, requestId, channelId or nonce, as sent */
#define WANT_RANGES_MAX 64
#define OBSERVERS_MAX 8     /* that one harness answers */
#define FEED_EPOCHS_MAX 128 /* that a feed_state names */

#define BROKER_BODY_MAX (1u << 20)
#define BROKER_HEADER_MAX (16u << 10)
#define BROKER_CONNECTIONS_MAX 256           /* by each way: TCP, Unix socket, TLS */
#define BROKER_HELD_MAX (64u << 20)          /* of all connections together; and one */
#define BROKER_STRANGERS_HELD_MAX (4u << 20) /* of it, without the token */
#define BROKER_STALLED_S 3                   /* an answer unread makes room after that */
#define BROKER_REQUEST_S 20                  /* until a request has come whole */
#define BROKER_IDLE_S 60                     /* between two requests of a connection */
#define BROKER_H2_STREAMS_MAX 100            /* of one connection at one time */
#define BROKER_H2_WINDOW_BYTES (2u << 20) /* bodies of a connection that are not done */
#define BROKER_H2_HELD_MAX (16u << 20)    /* answers of a connection, unread; and one */
#define BROKER_H2_RESETS_PER_S 20
#define BROKER_H2_RESETS_BURST 200
#define BROKER_H2_FRAMES_PER_S 50 /* SETTINGS, PING, PRIORITY, empty DATA */
#define BROKER_H2_FRAMES_BURST 500
#define BROKER_H2_ACKS_MAX 100
#define BROKER_H2_UNREAD_S 60
#define BROKER_HANDSHAKE_S 10

#endif
