/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * QUIC sockets: numbers and structures, as the in-kernel QUIC module and draft-lxin-quic-socket-apis
 * have them. They are an ABI. Programs that have them from <linux/quic.h> do not need this file; what
 * is defined already stays as it is.
 */
#ifndef QUICKET_QUIC_H
#define QUICKET_QUIC_H

#include <stdint.h>
#include <sys/socket.h>

#ifndef IPPROTO_QUIC
#define IPPROTO_QUIC 261
#endif
#ifndef SOL_QUIC
#define SOL_QUIC 288
#endif

/* That of Linux, before or after this one, says the same. */
#ifndef _UAPI_LINUX_QUIC_H
#define _UAPI_LINUX_QUIC_H

/* Control messages of level SOL_QUIC. */
enum quic_cmsg_type {
	QUIC_STREAM_INFO,
	QUIC_HANDSHAKE_INFO,
};

/*
 * What becomes of a stream with a message, and what a message is: by the names of today, and by
 * those that there were before.
 */
enum quic_msg_flags {
	MSG_QUIC_STREAM_NEW = 0x400,        /* MSG_SYN */
	MSG_QUIC_STREAM_FIN = 0x200,        /* MSG_FIN */
	MSG_QUIC_STREAM_UNI = 0x800,        /* MSG_CONFIRM */
	MSG_QUIC_STREAM_DONTWAIT = 0x10000, /* MSG_WAITFORONE */
	MSG_QUIC_STREAM_SNDBLOCK = 0x2000,  /* MSG_ERRQUEUE */
	MSG_QUIC_DATAGRAM = 0x1000,         /* MSG_RST */
	MSG_QUIC_NOTIFICATION = 0x8000,     /* MSG_MORE */

	QUIC_STREAM_FLAG_NEW = MSG_QUIC_STREAM_NEW,
	QUIC_STREAM_FLAG_FIN = MSG_QUIC_STREAM_FIN,
	QUIC_STREAM_FLAG_UNI = MSG_QUIC_STREAM_UNI,
	QUIC_STREAM_FLAG_DONTWAIT = MSG_QUIC_STREAM_DONTWAIT,
	QUIC_STREAM_FLAG_SNDBLOCK = MSG_QUIC_STREAM_SNDBLOCK,
	QUIC_MSG_DATAGRAM = MSG_QUIC_DATAGRAM,
	QUIC_MSG_NOTIFICATION = MSG_QUIC_NOTIFICATION,
};

#define QUIC_STREAM_TYPE_SERVER_MASK 0x1
#define QUIC_STREAM_TYPE_UNI_MASK 0x2
#define QUIC_STREAM_TYPE_MASK 0x3
#define QUIC_STREAM_ID_STEP 4

/* Levels of TLS messages and secrets. */
enum quic_crypto_level {
	QUIC_CRYPTO_APP,
	QUIC_CRYPTO_INITIAL,
	QUIC_CRYPTO_HANDSHAKE,
	QUIC_CRYPTO_EARLY,
	QUIC_CRYPTO_MAX,
};

struct quic_handshake_info {
	uint8_t crypto_level;
};

struct quic_stream_info {
	int64_t stream_id;
	uint32_t stream_flags;
};

/* Options of level SOL_QUIC. */
#define QUIC_SOCKOPT_EVENT 0
#define QUIC_SOCKOPT_STREAM_OPEN 1
#define QUIC_SOCKOPT_STREAM_RESET 2
#define QUIC_SOCKOPT_STREAM_STOP_SENDING 3
#define QUIC_SOCKOPT_CONNECTION_ID 4
#define QUIC_SOCKOPT_CONNECTION_CLOSE 5
#define QUIC_SOCKOPT_CONNECTION_MIGRATION 6
#define QUIC_SOCKOPT_KEY_UPDATE 7
#define QUIC_SOCKOPT_TRANSPORT_PARAM 8
#define QUIC_SOCKOPT_CONFIG 9
#define QUIC_SOCKOPT_TOKEN 10
#define QUIC_SOCKOPT_ALPN 11
#define QUIC_SOCKOPT_SESSION_TICKET 12
#define QUIC_SOCKOPT_CRYPTO_SECRET 13
#define QUIC_SOCKOPT_TRANSPORT_PARAM_EXT 14

/* TRANSPORT_PARAM. Zero leaves a parameter as it is. */
struct quic_transport_param {
	uint8_t remote;
	uint8_t disable_active_migration;
	uint8_t grease_quic_bit;
	uint8_t stateless_reset;
	uint8_t disable_1rtt_encryption;
	uint8_t disable_compatible_version;
	uint8_t active_connection_id_limit;
	uint8_t ack_delay_exponent;
	uint16_t max_datagram_frame_size;
	uint16_t max_udp_payload_size;
	uint32_t max_idle_timeout; /* microseconds */
	uint32_t max_ack_delay;    /* microseconds */
	uint16_t max_streams_bidi;
	uint16_t max_streams_uni;
	uint64_t max_data;
	uint64_t max_stream_data_bidi_local;
	uint64_t max_stream_data_bidi_remote;
	uint64_t max_stream_data_uni;
};

/* CONFIG. Zero leaves a setting as it is. */
struct quic_config {
	uint32_t version;
	uint32_t plpmtud_probe_interval; /* microseconds */
	uint32_t initial_smoothed_rtt;   /* microseconds */
	uint32_t payload_cipher_type;    /* TLS_CIPHER_* of <linux/tls.h> */
	uint8_t congestion_control_algo;
	uint8_t validate_peer_address;
	uint8_t stream_data_nodelay;
	uint8_t receive_session_ticket;
	uint8_t certificate_request;
	uint8_t reserved[3];
	uint32_t keepalive_probe_interval; /* microseconds */
};

enum quic_cong_algo {
	QUIC_CONG_ALG_RENO,
	QUIC_CONG_ALG_CUBIC,
	QUIC_CONG_ALG_MAX,
};

#define QUIC_VERSION_V1 0x1
#define QUIC_VERSION_V2 0x6b3343cf

/* CRYPTO_SECRET. */
#define QUIC_CRYPTO_SECRET_BUFFER_SIZE 48
struct quic_crypto_secret {
	uint8_t send;
	uint8_t level;
	uint16_t reserved;
	uint32_t type; /* TLS_CIPHER_* */
	uint8_t secret[QUIC_CRYPTO_SECRET_BUFFER_SIZE];
};

/* STREAM_RESET, STREAM_STOP_SENDING. */
struct quic_errinfo {
	int64_t stream_id;
	uint32_t errcode;
};

/* CONNECTION_ID. */
struct quic_connection_id_info {
	uint8_t dest;
	uint8_t reserved[3];
	uint32_t active;
	uint32_t prior_to;
};

/* EVENT. */
struct quic_event_option {
	uint8_t type;
	uint8_t on;
};

/* CONNECTION_CLOSE. */
#define QUIC_CLOSE_PHRASE_BUFFER_SIZE 64
struct quic_connection_close {
	uint32_t errcode;
	uint8_t frame;
	uint8_t reserved[3];
	uint8_t phrase[QUIC_CLOSE_PHRASE_BUFFER_SIZE];
};

/* Notifications: the first byte is the type, the structure or value follows at once. */
enum quic_event_type {
	QUIC_EVENT_NONE,
	QUIC_EVENT_STREAM_UPDATE,
	QUIC_EVENT_STREAM_MAX_DATA,
	QUIC_EVENT_STREAM_MAX_STREAM,
	QUIC_EVENT_CONNECTION_ID,
	QUIC_EVENT_CONNECTION_CLOSE,
	QUIC_EVENT_CONNECTION_MIGRATION,
	QUIC_EVENT_KEY_UPDATE,
	QUIC_EVENT_NEW_TOKEN,
	QUIC_EVENT_NEW_SESSION_TICKET,
	QUIC_EVENT_MAX,
};

enum {
	QUIC_STREAM_SEND_STATE_READY,
	QUIC_STREAM_SEND_STATE_SEND,
	QUIC_STREAM_SEND_STATE_SENT,
	QUIC_STREAM_SEND_STATE_RECVD,
	QUIC_STREAM_SEND_STATE_RESET_SENT,
	QUIC_STREAM_SEND_STATE_RESET_RECVD,

	QUIC_STREAM_RECV_STATE_RECV,
	QUIC_STREAM_RECV_STATE_SIZE_KNOWN,
	QUIC_STREAM_RECV_STATE_RECVD,
	QUIC_STREAM_RECV_STATE_READ,
	QUIC_STREAM_RECV_STATE_RESET_RECVD,
	QUIC_STREAM_RECV_STATE_RESET_READ,
};

struct quic_stream_update {
	int64_t id;
	uint8_t state;
	uint8_t reserved[3];
	uint32_t errcode;
	uint64_t finalsz;
};

struct quic_stream_max_data {
	int64_t id;
	uint64_t max_data;
};

union quic_event {
	struct quic_stream_update update;
	struct quic_stream_max_data max_data;
	struct quic_connection_close close;
	struct quic_connection_id_info info;
	uint64_t max_stream;
	uint8_t local_migration;
	uint8_t key_update_phase;
};

/* Codes of transport errors (RFC 9000, Section 20.1; RFC 9368, Section 8.4). */
enum {
	QUIC_TRANSPORT_ERROR_NONE = 0x00,
	QUIC_TRANSPORT_ERROR_INTERNAL = 0x01,
	QUIC_TRANSPORT_ERROR_CONNECTION_REFUSED = 0x02,
	QUIC_TRANSPORT_ERROR_FLOW_CONTROL = 0x03,
	QUIC_TRANSPORT_ERROR_STREAM_LIMIT = 0x04,
	QUIC_TRANSPORT_ERROR_STREAM_STATE = 0x05,
	QUIC_TRANSPORT_ERROR_FINAL_SIZE = 0x06,
	QUIC_TRANSPORT_ERROR_FRAME_ENCODING = 0x07,
	QUIC_TRANSPORT_ERROR_TRANSPORT_PARAM = 0x08,
	QUIC_TRANSPORT_ERROR_CONNECTION_ID_LIMIT = 0x09,
	QUIC_TRANSPORT_ERROR_PROTOCOL_VIOLATION = 0x0a,
	QUIC_TRANSPORT_ERROR_INVALID_TOKEN = 0x0b,
	QUIC_TRANSPORT_ERROR_APPLICATION = 0x0c,
	QUIC_TRANSPORT_ERROR_CRYPTO_BUF_EXCEEDED = 0x0d,
	QUIC_TRANSPORT_ERROR_KEY_UPDATE = 0x0e,
	QUIC_TRANSPORT_ERROR_AEAD_LIMIT_REACHED = 0x0f,
	QUIC_TRANSPORT_ERROR_NO_VIABLE_PATH = 0x10,
	QUIC_TRANSPORT_ERROR_VERSION_NEGOTIATION = 0x11,
	/* The first of 256; what is above it is the alert of TLS. */
	QUIC_TRANSPORT_ERROR_CRYPTO = 0x0100,
};

#endif /* _UAPI_LINUX_QUIC_H */
#endif
