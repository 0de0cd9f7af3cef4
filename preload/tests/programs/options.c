/*
 * Each option of SOL_QUIC: in which direction and state it may be used, what it takes and what it
 * refuses.
 */
#include "pair.h"

#include <linux/tls.h>

static int set(int fd, int name, const void *value, socklen_t length)
{
	return setsockopt(fd, SOL_QUIC, name, value, length);
}

/* Gets a value; how long it is, or -1. */
static int get(int fd, int name, void *value, socklen_t room)
{
	socklen_t length = room;
	return getsockopt(fd, SOL_QUIC, name, value, &length) == 0 ? (int)length : -1;
}

static int quic_socket(int family)
{
	int fd = socket(family, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(fd >= 0);
	return fd;
}

/* A client without an answer: it is establishing its connection. */
static int establishing(struct sockaddr_storage *address, int *listens)
{
	socklen_t length;
	*listens = listener(AF_INET, address, &length);
	int fd = quic_socket(AF_INET);
	CHECK(connect(fd, (struct sockaddr *)address, length) == 0);
	return fd;
}

static void receive(int fd, const char *expected)
{
	char data[64];
	CHECK(recv(fd, data, sizeof(data), 0) == (ssize_t)strlen(expected));
	CHECK(memcmp(data, expected, strlen(expected)) == 0);
}

/* Which can be set, which can be got. */
static void directions(void)
{
	static const int set_only[] = { QUIC_SOCKOPT_STREAM_RESET, QUIC_SOCKOPT_STREAM_STOP_SENDING,
					QUIC_SOCKOPT_CONNECTION_MIGRATION, QUIC_SOCKOPT_KEY_UPDATE,
					QUIC_SOCKOPT_CRYPTO_SECRET };
	static char value[5000];
	int fd = quic_socket(AF_INET);
	for (size_t i = 0; i < sizeof(set_only) / sizeof(*set_only); i++)
		FAILS(get(fd, set_only[i], value, 64), ENOPROTOOPT);
	FAILS(set(fd, QUIC_SOCKOPT_STREAM_OPEN, value, 16), ENOPROTOOPT);
	for (int name = 15; name < 20; name++) {
		FAILS(get(fd, name, value, 64), ENOPROTOOPT);
		FAILS(set(fd, name, value, 64), ENOPROTOOPT);
	}
	for (int name = 0; name < 15; name++)
		FAILS(set(fd, name, value, sizeof(value)), EINVAL);
	CHECK(close(fd) == 0);
}

/* EVENT */
static void events(void)
{
	int fd = quic_socket(AF_INET);
	for (uint8_t type = 1; type < QUIC_EVENT_MAX; type++) {
		struct quic_event_option event = { .type = type, .on = 9 };
		CHECK(get(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == sizeof(event));
		CHECK(event.type == type && event.on == 0);
		event.on = 1;
		CHECK(set(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == 0);
		event.on = 0;
		CHECK(get(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == sizeof(event));
		CHECK(event.on == 1);
		event.on = 0;
		CHECK(set(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == 0);
		event.on = 1;
		CHECK(get(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == sizeof(event));
		CHECK(event.on == 0);
	}
	struct quic_event_option none = { .type = QUIC_EVENT_NONE, .on = 1 };
	struct quic_event_option beyond = { .type = QUIC_EVENT_MAX, .on = 1 };
	FAILS(set(fd, QUIC_SOCKOPT_EVENT, &none, sizeof(none)), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_EVENT, &beyond, sizeof(beyond)), EINVAL);
	FAILS(get(fd, QUIC_SOCKOPT_EVENT, &beyond, sizeof(beyond)), EINVAL);
	CHECK(close(fd) == 0);
}

/* STREAM_OPEN, STREAM_RESET, STREAM_STOP_SENDING */
static void streams(void)
{
	int fd = quic_socket(AF_INET);
	struct quic_stream_info open = { .stream_id = -1 };
	struct quic_errinfo error = { .stream_id = 0, .errcode = 7 };
	FAILS(get(fd, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)), EPIPE);
	FAILS(set(fd, QUIC_SOCKOPT_STREAM_RESET, &error, sizeof(error)), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_STREAM_STOP_SENDING, &error, sizeof(error)), EINVAL);
	CHECK(close(fd) == 0);

	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	FAILS(set(pair.client, QUIC_SOCKOPT_STREAM_RESET, &error, sizeof(error)), EINVAL);
	for (int i = 0; i < 2; i++) {
		open = (struct quic_stream_info){ .stream_id = -1 };
		CHECK(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)) ==
		      sizeof(open));
		CHECK(open.stream_id == 4 * i && (open.stream_flags & QUIC_STREAM_FLAG_NEW));
		open = (struct quic_stream_info){ .stream_id = -1,
						  .stream_flags = QUIC_STREAM_FLAG_UNI };
		CHECK(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)) ==
		      sizeof(open));
		CHECK(open.stream_id == 2 + 4 * i);
		CHECK(open.stream_flags & QUIC_STREAM_FLAG_UNI);
	}
	/* Once more, while nothing was sent; not one of the peer. */
	open = (struct quic_stream_info){ .stream_id = 0 };
	CHECK(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)) == sizeof(open));
	open = (struct quic_stream_info){ .stream_id = 1 };
	FAILS(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)), EINVAL);
	/* More than the peer permits. */
	open = (struct quic_stream_info){ .stream_id = 4 * 100,
					  .stream_flags = QUIC_STREAM_FLAG_DONTWAIT };
	FAILS(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)), EAGAIN);
	/* A flag that there is not. */
	open = (struct quic_stream_info){ .stream_id = -1, .stream_flags = 1 };
	FAILS(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)), EINVAL);

	/* It sends where it was opened. */
	CHECK(send_on(pair.client, "one", 3, 0, 0) == 3);
	receive(pair.server, "one");
	open = (struct quic_stream_info){ .stream_id = 0 };
	FAILS(get(pair.client, QUIC_SOCKOPT_STREAM_OPEN, &open, sizeof(open)), EINVAL);
	CHECK(set(pair.client, QUIC_SOCKOPT_STREAM_RESET, &error, sizeof(error)) == 0);
	FAILS(set(pair.client, QUIC_SOCKOPT_STREAM_RESET, &error, sizeof(error)), EINVAL);
	FAILS(send_on(pair.client, "more", 4, 0, 0), EINVAL);
	/* A unidirectional stream is only its opener's to reset, and its receiver's to stop. */
	CHECK(send_on(pair.client, "two", 3, 2, 0) == 3);
	receive(pair.server, "two");
	error.stream_id = 2;
	FAILS(set(pair.server, QUIC_SOCKOPT_STREAM_RESET, &error, sizeof(error)), EINVAL);
	FAILS(set(pair.client, QUIC_SOCKOPT_STREAM_STOP_SENDING, &error, sizeof(error)), EINVAL);
	CHECK(set(pair.server, QUIC_SOCKOPT_STREAM_STOP_SENDING, &error, sizeof(error)) == 0);
	/* The sender hears of it, and after its answer the stream is no more. */
	for (int turn = 0; send_on(pair.client, "x", 1, 2, 0) == 1; turn++) {
		CHECK(turn < 10000);
		usleep(1000);
	}
	CHECK(errno == EINVAL || errno == ENOSTR);
	for (int turn = 0; set(pair.server, QUIC_SOCKOPT_STREAM_STOP_SENDING, &error,
			       sizeof(error)) == 0 || errno != ENOSTR;
	     turn++) {
		CHECK(errno == EAGAIN || errno == EINVAL);
		CHECK(turn < 10000);
		usleep(1000);
	}
	error.stream_id = 400;
	FAILS(set(pair.server, QUIC_SOCKOPT_STREAM_STOP_SENDING, &error, sizeof(error)), EINVAL);
}

static struct quic_connection_id_info ids_of(int fd, uint8_t dest)
{
	struct quic_connection_id_info info = { .dest = dest };
	CHECK(get(fd, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)) == sizeof(info));
	CHECK(info.dest == dest);
	return info;
}

/* Sets until what stands in the way is over: the peer has retired what it was asked to. */
static void set_ids(int fd, uint8_t dest, uint32_t active, uint32_t prior_to)
{
	struct quic_connection_id_info info = { .dest = dest, .active = active,
						.prior_to = prior_to };
	for (int turn = 0;
	     set(fd, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)) != 0; turn++) {
		/* EINVAL: those of the peer may be under way. */
		CHECK((errno == EAGAIN || errno == EINVAL) && turn < 10000);
		usleep(1000);
	}
}

/* CONNECTION_ID */
static void connection_ids(void)
{
	struct quic_connection_id_info info = { .prior_to = 1 };
	int fd = quic_socket(AF_INET);
	FAILS(get(fd, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	CHECK(close(fd) == 0);

	struct pair pair = connected(AF_INET6, SOCK_DGRAM);
	CHECK(ids_of(pair.client, 0).active == 0 && ids_of(pair.client, 0).prior_to == 0);
	/* The peer's: use another one and retire those before it. */
	set_ids(pair.client, 1, 0, 3);
	CHECK(ids_of(pair.client, 1).prior_to == 3 && ids_of(pair.client, 1).active == 3);
	info = (struct quic_connection_id_info){ .dest = 1, .prior_to = 3 };
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	info = (struct quic_connection_id_info){ .dest = 1, .active = 2 };
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	info = (struct quic_connection_id_info){ .dest = 1, .prior_to = 99 };
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	CHECK(send(pair.client, "a", 1, MSG_SYN) == 1);
	receive(pair.server, "a");
	/* One's own: the peer retires them. */
	set_ids(pair.server, 0, 0, 5);
	for (int turn = 0; ids_of(pair.server, 0).prior_to != 5; turn++) {
		CHECK(turn < 10000);
		usleep(1000);
	}
	info = (struct quic_connection_id_info){ .prior_to = 99 };
	FAILS(set(pair.server, QUIC_SOCKOPT_CONNECTION_ID, &info, sizeof(info)), EINVAL);
	CHECK(send(pair.client, "b", 1, 0) == 1);
	receive(pair.server, "b");
}

/* CONNECTION_CLOSE, KEY_UPDATE */
static void ends_and_keys(void)
{
	struct quic_connection_close close_info = { .errcode = 77, .frame = 5,
						    .phrase = "that is all" };
	struct quic_connection_close found = { 0 };
	int fd = quic_socket(AF_INET);
	CHECK(get(fd, QUIC_SOCKOPT_CONNECTION_CLOSE, &found, sizeof(found)) == sizeof(found));
	CHECK(found.errcode == 0 && found.phrase[0] == 0);
	FAILS(set(fd, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0), EPIPE);
	CHECK(close(fd) == 0);

	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	CHECK(set(pair.client, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0) == 0);
	FAILS(set(pair.client, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0), EINVAL);
	CHECK(set(pair.client, QUIC_SOCKOPT_CONNECTION_CLOSE, &close_info, sizeof(close_info)) == 0);
	CHECK(get(pair.client, QUIC_SOCKOPT_CONNECTION_CLOSE, &found, sizeof(found)) ==
	      sizeof(found));
	CHECK(found.errcode == 77 && found.frame == 0);
	CHECK(strcmp((char *)found.phrase, "that is all") == 0);
	CHECK(get(pair.client, QUIC_SOCKOPT_CONNECTION_CLOSE, &found, 4) == 4);
	CHECK(close(pair.client) == 0);
	char byte;
	FAILS(recv(pair.server, &byte, 1, 0), ENOTCONN);
	memset(&found, 0, sizeof(found));
	CHECK(get(pair.server, QUIC_SOCKOPT_CONNECTION_CLOSE, &found, sizeof(found)) ==
	      sizeof(found));
	CHECK(found.errcode == 77 && strcmp((char *)found.phrase, "that is all") == 0);
	FAILS(set(pair.server, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0), EPIPE);
}

static void refuses_param(int fd, struct quic_transport_param param)
{
	FAILS(set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)), EINVAL);
}

static void takes_param(int fd, struct quic_transport_param param)
{
	CHECK(set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == 0);
}

#define PARAM(...) ((struct quic_transport_param){ __VA_ARGS__ })

/* TRANSPORT_PARAM: defaults, ranges, and zeros that change nothing. */
static void transport_param_ranges(void)
{
	int fd = quic_socket(AF_INET);
	struct quic_transport_param param = { 0 }, again = { 0 };
	CHECK(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == sizeof(param));
	CHECK(param.remote == 0 && param.disable_active_migration == 0);
	CHECK(param.active_connection_id_limit == 7 && param.ack_delay_exponent == 3);
	CHECK(param.max_datagram_frame_size == 0 && param.max_udp_payload_size == 65527);
	CHECK(param.max_idle_timeout == 30000000 && param.max_ack_delay == 25000);
	CHECK(param.max_streams_bidi == 100 && param.max_streams_uni == 100);
	CHECK(param.max_data == 65535 * 32 && param.max_stream_data_uni == 65535 * 16);
	CHECK(param.max_stream_data_bidi_local == 65535 * 16);
	CHECK(param.max_stream_data_bidi_remote == 65535 * 16);
	takes_param(fd, PARAM(0));
	CHECK(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &again, sizeof(again)) == sizeof(again));
	CHECK(memcmp(&param, &again, sizeof(param)) == 0);

	refuses_param(fd, PARAM(.max_udp_payload_size = 1199));
	refuses_param(fd, PARAM(.max_udp_payload_size = 65528));
	takes_param(fd, PARAM(.max_udp_payload_size = 1200));
	refuses_param(fd, PARAM(.ack_delay_exponent = 21));
	takes_param(fd, PARAM(.ack_delay_exponent = 20));
	refuses_param(fd, PARAM(.max_ack_delay = 16384000));
	takes_param(fd, PARAM(.max_ack_delay = 16383999));
	refuses_param(fd, PARAM(.active_connection_id_limit = 1));
	refuses_param(fd, PARAM(.active_connection_id_limit = 9));
	takes_param(fd, PARAM(.active_connection_id_limit = 8));
	refuses_param(fd, PARAM(.max_idle_timeout = 999999));
	takes_param(fd, PARAM(.max_idle_timeout = 1000000));
	refuses_param(fd, PARAM(.max_datagram_frame_size = 1199));
	takes_param(fd, PARAM(.max_datagram_frame_size = 1200));
	refuses_param(fd, PARAM(.max_data = 1199));
	refuses_param(fd, PARAM(.max_data = INT32_MAX / 4 + 1));
	takes_param(fd, PARAM(.max_data = INT32_MAX / 4));
	refuses_param(fd, PARAM(.max_stream_data_bidi_local = INT32_MAX / 8 + 1));
	refuses_param(fd, PARAM(.max_stream_data_bidi_remote = 1199));
	refuses_param(fd, PARAM(.max_stream_data_uni = 1));
	refuses_param(fd, PARAM(.max_streams_bidi = 4097));
	refuses_param(fd, PARAM(.max_streams_uni = 4097));
	takes_param(fd, PARAM(.max_streams_bidi = 4096, .max_streams_uni = 1));
	/* The peer's, without a connection. */
	refuses_param(fd, PARAM(.remote = 1, .max_data = 5000));
	CHECK(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == sizeof(param));
	CHECK(param.max_udp_payload_size == 1200 && param.ack_delay_exponent == 20);
	CHECK(param.max_ack_delay == 16383999 && param.active_connection_id_limit == 8);
	CHECK(param.max_idle_timeout == 1000000 && param.max_datagram_frame_size == 1200);
	CHECK(param.max_data == INT32_MAX / 4 && param.max_streams_bidi == 4096);
	CHECK(param.max_streams_uni == 1 && param.max_stream_data_uni == 65535 * 16);
	/* No more than there is room for. */
	CHECK(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, 8) == 8);
	CHECK(close(fd) == 0);
}

static const struct quic_transport_param chosen = {
	.disable_active_migration = 1,
	.grease_quic_bit = 1,
	.disable_compatible_version = 1,
	.active_connection_id_limit = 5,
	.ack_delay_exponent = 4,
	.max_datagram_frame_size = 1500,
	.max_udp_payload_size = 1400,
	.max_idle_timeout = 9000000,
	.max_ack_delay = 20000,
	.max_streams_bidi = 33,
	.max_streams_uni = 44,
	.max_data = 100000,
	.max_stream_data_bidi_local = 10001,
	.max_stream_data_bidi_remote = 10002,
	.max_stream_data_uni = 10003,
};

static void choose_params(int fd)
{
	takes_param(fd, chosen);
}

/* The peer gets each parameter; an established connection keeps what it has. */
static void transport_param(void)
{
	transport_param_ranges();
	struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, choose_params);
	int both[2] = { pair.client, pair.server };
	for (int i = 0; i < 2; i++) {
		struct quic_transport_param expected = chosen, param = { .remote = 1 };
		expected.remote = 1;
		CHECK(get(both[i], QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) ==
		      sizeof(param));
		CHECK(memcmp(&param, &expected, sizeof(param)) == 0);
		refuses_param(both[i], PARAM(.max_data = 5000));
		refuses_param(both[i], PARAM(.remote = 1, .max_data = 5000));
	}
	/* While connecting the peer's can be assumed; the first message begins the handshake. */
	struct sockaddr_storage address;
	int listens, client = establishing(&address, &listens);
	takes_param(client, PARAM(.max_data = 50000));
	takes_param(client, PARAM(.remote = 1, .max_data = 5000, .max_streams_uni = 3));
	struct quic_transport_param param = { .remote = 1 };
	CHECK(get(client, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == sizeof(param));
	CHECK(param.remote == 1 && param.max_data == 5000 && param.max_streams_uni == 3);
}

/* TRANSPORT_PARAM_EXT, CRYPTO_SECRET */
static void for_tls(void)
{
	static uint8_t bytes[600];
	struct quic_crypto_secret secret = { .send = 1, .level = QUIC_CRYPTO_HANDSHAKE,
					     .type = TLS_CIPHER_AES_GCM_128 };
	int fd = quic_socket(AF_INET);
	FAILS(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 512), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 0), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)), EINVAL);
	CHECK(close(fd) == 0);

	struct sockaddr_storage address;
	int listens;
	fd = establishing(&address, &listens);
	FAILS(get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 8), EINVAL);
	int length = get(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 512);
	CHECK(length > 20 && length <= 512);
	/* They are settled by that. */
	refuses_param(fd, PARAM(.max_data = 50000));
	FAILS(set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 513), EINVAL);
	secret.level = QUIC_CRYPTO_INITIAL;
	FAILS(set(fd, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)), EINVAL);
	secret.level = QUIC_CRYPTO_MAX;
	FAILS(set(fd, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)), EINVAL);
	secret.level = QUIC_CRYPTO_HANDSHAKE;
	static const uint32_t others[] = { 0, TLS_CIPHER_AES_GCM_128 - 1,
					   TLS_CIPHER_CHACHA20_POLY1305 + 1 };
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		secret.type = others[i];
		FAILS(set(fd, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)), EINVAL);
	}
	static const uint32_t types[] = { TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256,
					  TLS_CIPHER_AES_CCM_128, TLS_CIPHER_CHACHA20_POLY1305 };
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		int other = establishing(&address, &listens);
		secret.type = types[i];
		CHECK(set(other, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)) == 0);
	}
	/* What is not valid ends the connection. */
	memset(bytes, 0xff, sizeof(bytes));
	FAILS(set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 30), EINVAL);
	FAILS(send(fd, "x", 1, MSG_SYN | MSG_NOSIGNAL), EPIPE);

	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	FAILS(get(pair.client, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, bytes, 512), EINVAL);
	secret.type = TLS_CIPHER_AES_GCM_128;
	FAILS(set(pair.client, QUIC_SOCKOPT_CRYPTO_SECRET, &secret, sizeof(secret)), EINVAL);
}

static void refuses_config(int fd, struct quic_config config)
{
	FAILS(set(fd, QUIC_SOCKOPT_CONFIG, &config, sizeof(config)), EINVAL);
}

static void takes_config(int fd, struct quic_config config)
{
	CHECK(set(fd, QUIC_SOCKOPT_CONFIG, &config, sizeof(config)) == 0);
}

#define CONFIG(...) ((struct quic_config){ __VA_ARGS__ })

/* CONFIG */
static void config(void)
{
	int fd = quic_socket(AF_INET);
	struct quic_config config = { 0 }, again = { 0 };
	CHECK(get(fd, QUIC_SOCKOPT_CONFIG, &config, sizeof(config)) == sizeof(config));
	CHECK(config.version == 0 && config.initial_smoothed_rtt == 333000);
	CHECK(config.congestion_control_algo == QUIC_CONG_ALG_RENO);
	refuses_config(fd, CONFIG(.plpmtud_probe_interval = 4999999));
	refuses_config(fd, CONFIG(.plpmtud_probe_interval = UINT32_MAX));
	refuses_config(fd, CONFIG(.initial_smoothed_rtt = 999));
	refuses_config(fd, CONFIG(.initial_smoothed_rtt = 6000001));
	refuses_config(fd, CONFIG(.payload_cipher_type = 50));
	refuses_config(fd, CONFIG(.payload_cipher_type = 55));
	refuses_config(fd, CONFIG(.congestion_control_algo = QUIC_CONG_ALG_MAX));
	refuses_config(fd, CONFIG(.keepalive_probe_interval = 1499999));
	/* All of it or nothing. */
	refuses_config(fd, CONFIG(.validate_peer_address = 1, .keepalive_probe_interval = 1));
	CHECK(get(fd, QUIC_SOCKOPT_CONFIG, &again, sizeof(again)) == sizeof(again));
	CHECK(memcmp(&config, &again, sizeof(config)) == 0);
	struct quic_config all = {
		.version = QUIC_VERSION_V2,
		.plpmtud_probe_interval = 5000000,
		.initial_smoothed_rtt = 1000,
		.payload_cipher_type = TLS_CIPHER_CHACHA20_POLY1305,
		.congestion_control_algo = QUIC_CONG_ALG_CUBIC,
		.validate_peer_address = 1,
		.stream_data_nodelay = 1,
		.receive_session_ticket = 1,
		.certificate_request = 2,
		.keepalive_probe_interval = 1500000,
	};
	takes_config(fd, all);
	takes_config(fd, CONFIG(0));
	CHECK(get(fd, QUIC_SOCKOPT_CONFIG, &again, sizeof(again)) == sizeof(again));
	CHECK(memcmp(&all, &again, sizeof(all)) == 0);
	/* A version that there is not makes the server name those that it has. */
	struct sockaddr_in nowhere = { .sin_family = AF_INET, .sin_port = htons(9),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	takes_config(fd, CONFIG(.version = 0xff00001d));
	CHECK(connect(fd, (struct sockaddr *)&nowhere, sizeof(nowhere)) == 0);
	CHECK(close(fd) == 0);

	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	refuses_config(pair.client, CONFIG(.validate_peer_address = 1));
	refuses_config(pair.server, CONFIG(.stream_data_nodelay = 1));
}

static void validate(int fd)
{
	takes_config(fd, CONFIG(.validate_peer_address = 1));
}

/* A token of an earlier connection. */
static struct {
	uint8_t bytes[120];
	socklen_t length;
} shown;

static void show_token(int fd)
{
	CHECK(set(fd, QUIC_SOCKOPT_TOKEN, shown.bytes, shown.length) == 0);
}

/* TOKEN: the server validates addresses; a token of one connection spares the next a round trip. */
static void token(void)
{
	static uint8_t token[200], other[200];
	struct sockaddr_storage address;
	socklen_t length;
	int fd = quic_socket(AF_INET);
	CHECK(get(fd, QUIC_SOCKOPT_TOKEN, token, sizeof(token)) == 0);
	FAILS(set(fd, QUIC_SOCKOPT_TOKEN, token, 0), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_TOKEN, token, 121), EINVAL);
	memset(token, 7, sizeof(token));
	CHECK(set(fd, QUIC_SOCKOPT_TOKEN, token, 120) == 0);
	FAILS(get(fd, QUIC_SOCKOPT_TOKEN, other, 119), EINVAL);
	CHECK(get(fd, QUIC_SOCKOPT_TOKEN, other, sizeof(other)) == 120);
	CHECK(memcmp(token, other, 120) == 0);
	CHECK(close(fd) == 0);
	fd = listener(AF_INET, &address, &length);
	FAILS(get(fd, QUIC_SOCKOPT_TOKEN, token, sizeof(token)), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_TOKEN, NULL, 0), EINVAL);
	CHECK(close(fd) == 0);

	struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, validate);
	FAILS(get(pair.server, QUIC_SOCKOPT_TOKEN, token, sizeof(token)), EINVAL);
	int got = 0;
	for (int turn = 0; got == 0; turn++) {
		CHECK(turn < 10000);
		usleep(1000);
		got = get(pair.client, QUIC_SOCKOPT_TOKEN, token, sizeof(token));
	}
	CHECK(got > 0 && got <= 120);
	/* The server sends another one when it is told to. */
	CHECK(set(pair.server, QUIC_SOCKOPT_TOKEN, NULL, 0) == 0 || errno == EAGAIN);
	length = sizeof(address);
	CHECK(getpeername(pair.client, (struct sockaddr *)&address, &length) == 0);
	shown.length = (socklen_t)got;
	memcpy(shown.bytes, token, shown.length);
	connect_pair(&pair, SOCK_DGRAM, &address, length, show_token);
	CHECK(send(pair.client, "x", 1, MSG_SYN) == 1);
	receive(pair.server, "x");
}

/* ALPN */
static void alpn(void)
{
	static char names[200];
	struct sockaddr_storage address;
	socklen_t length;
	int fd = quic_socket(AF_INET);
	CHECK(get(fd, QUIC_SOCKOPT_ALPN, names, sizeof(names)) == 0);
	CHECK(set(fd, QUIC_SOCKOPT_ALPN, "smbd, h3", 8) == 0);
	CHECK(get(fd, QUIC_SOCKOPT_ALPN, names, sizeof(names)) == 7);
	CHECK(memcmp(names, "smbd,h3", 7) == 0);
	FAILS(get(fd, QUIC_SOCKOPT_ALPN, names, 7), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_ALPN, "", 0), EINVAL);
	memset(names, 'a', sizeof(names));
	FAILS(set(fd, QUIC_SOCKOPT_ALPN, names, 129), EINVAL);
	CHECK(set(fd, QUIC_SOCKOPT_ALPN, names, 127) == 0);
	CHECK(close(fd) == 0);
	fd = listener(AF_INET, &address, &length);
	FAILS(set(fd, QUIC_SOCKOPT_ALPN, "h3", 2), EINVAL);
	/* A connection has that of its listener. */
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	CHECK(get(pair.server, QUIC_SOCKOPT_ALPN, names, sizeof(names)) == 4);
	CHECK(memcmp(names, "test", 4) == 0);
}

/* SESSION_TICKET */
static void session_ticket(void)
{
	static uint8_t ticket[4097], other[4097];
	struct sockaddr_storage address;
	socklen_t length;
	int listens, fd = quic_socket(AF_INET);
	memset(ticket, 9, sizeof(ticket));
	FAILS(set(fd, QUIC_SOCKOPT_SESSION_TICKET, ticket, 63), EINVAL);
	FAILS(set(fd, QUIC_SOCKOPT_SESSION_TICKET, ticket, 4097), EINVAL);
	CHECK(set(fd, QUIC_SOCKOPT_SESSION_TICKET, ticket, 4096) == 0);
	CHECK(get(fd, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other)) == 0);
	CHECK(close(fd) == 0);
	fd = establishing(&address, &listens);
	CHECK(set(fd, QUIC_SOCKOPT_SESSION_TICKET, ticket, 64) == 0);
	FAILS(get(fd, QUIC_SOCKOPT_SESSION_TICKET, other, 63), EINVAL);
	CHECK(get(fd, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other)) == 64);
	CHECK(memcmp(ticket, other, 64) == 0);
	fd = listener(AF_INET, &address, &length);
	FAILS(get(fd, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other)), EPIPE);
	/* A server's is the master key for its client. */
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	CHECK(get(pair.server, QUIC_SOCKOPT_SESSION_TICKET, ticket, sizeof(ticket)) == 64);
	CHECK(get(pair.server, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other)) == 64);
	CHECK(memcmp(ticket, other, 64) == 0);
	memset(ticket, 9, 64);
	CHECK(set(pair.server, QUIC_SOCKOPT_SESSION_TICKET, ticket, 64) == 0);
	CHECK(get(pair.server, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other)) == 64);
	CHECK(memcmp(ticket, other, 64) == 0);
	int got = 0;
	for (int turn = 0; got == 0; turn++) {
		CHECK(turn < 10000);
		usleep(1000);
		got = get(pair.client, QUIC_SOCKOPT_SESSION_TICKET, other, sizeof(other));
	}
	CHECK(got >= 64);
}

/* CONNECTION_MIGRATION: what it refuses. That connections move is in features.c. */
static void migration(void)
{
	struct sockaddr_storage address, local;
	socklen_t length = sizeof(struct sockaddr_in);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(9),
				   .sin6_addr = in6addr_loopback };
	int listens, fd = quic_socket(AF_INET);
	FAILS(set(fd, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, sizeof(to)), EPIPE);
	fd = listener(AF_INET, &address, &length);
	FAILS(set(fd, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, sizeof(to)), EPIPE);
	/* A client has no preferred address. */
	fd = establishing(&address, &listens);
	FAILS(set(fd, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, sizeof(to)), EINVAL);
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_MIGRATION, &v6, sizeof(v6)), EINVAL);
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, 4), EINVAL);
	FAILS(set(pair.server, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, sizeof(to)), EINVAL);
	to.sin_port = 0;
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_MIGRATION, &to, sizeof(to)), EINVAL);
	length = sizeof(local);
	CHECK(getsockname(pair.client, (struct sockaddr *)&local, &length) == 0);
	FAILS(set(pair.client, QUIC_SOCKOPT_CONNECTION_MIGRATION, &local, length), EINVAL);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*test)(void);
	} tests[] = {
		{ "directions", directions },
		{ "events", events },
		{ "streams", streams },
		{ "connection_ids", connection_ids },
		{ "ends_and_keys", ends_and_keys },
		{ "transport_param", transport_param },
		{ "for_tls", for_tls },
		{ "config", config },
		{ "token", token },
		{ "alpn", alpn },
		{ "session_ticket", session_ticket },
		{ "migration", migration },
	};
	alarm(120);
	/* All, or the one that is named. */
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (count < 2 || strcmp(arguments[1], tests[i].name) == 0)
			tests[i].test();
	puts("passed");
	return 0;
}
