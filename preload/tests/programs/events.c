/* Each of the nine events: when it is told, and what it says. */
#include "pair.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define WAIT 10000

struct told {
	uint8_t type;
	union quic_event event;
};

static void want(int fd, uint8_t type)
{
	struct quic_event_option event = { .type = type, .on = 1 };
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == 0);
}

/* The next message, which is a notification. */
static struct told told(int fd)
{
	struct told told = { 0 };
	static _Thread_local uint8_t data[4096];
	int64_t id;
	uint32_t flags;
	ssize_t length = recv_from(fd, data, sizeof(data), &id, &flags);
	CHECK(length > 1 && (flags & QUIC_MSG_NOTIFICATION) && (flags & MSG_EOR));
	told.type = data[0];
	length -= 1;
	memcpy(&told.event, data + 1,
	       (size_t)length < sizeof(told.event) ? (size_t)length : sizeof(told.event));
	return told;
}

static void told_update(int fd, int64_t id, uint8_t state, uint32_t errcode, uint64_t finalsz)
{
	struct told next = told(fd);
	struct quic_stream_update update = next.event.update;
	if (next.type != QUIC_EVENT_STREAM_UPDATE || update.id != id || update.state != state ||
	    update.errcode != errcode || update.finalsz != finalsz) {
		fprintf(stderr, "event %u: stream %lld, state %u, code %u, size %llu\n", next.type,
			(long long)update.id, update.state, update.errcode,
			(unsigned long long)update.finalsz);
		CHECK(!"the update that was due");
	}
}

static void receive(int fd, const char *expected)
{
	char data[64];
	int64_t id;
	uint32_t flags;
	CHECK(recv_from(fd, data, sizeof(data), &id, &flags) == (ssize_t)strlen(expected));
	CHECK(!(flags & QUIC_MSG_NOTIFICATION));
	CHECK(memcmp(data, expected, strlen(expected)) == 0);
}

static int queued(int fd, unsigned long request)
{
	int count = -1;
	CHECK(ioctl(fd, request, &count) == 0);
	return count;
}

/* Waits until so many bytes can be received. */
static void await_queued(int fd, int count)
{
	for (int turn = 0; queued(fd, FIONREAD) != count; turn++) {
		CHECK(turn < WAIT);
		usleep(1000);
	}
}

/* Waits until all that was sent is acknowledged. */
static void drain(int fd)
{
	for (int turn = 0; queued(fd, SIOCOUTQ) != 0; turn++) {
		CHECK(turn < WAIT);
		usleep(1000);
	}
}

static void give_up(int fd, int name, int64_t id, uint32_t errcode)
{
	struct quic_errinfo info = { .stream_id = id, .errcode = errcode };
	CHECK(setsockopt(fd, SOL_QUIC, name, &info, sizeof(info)) == 0);
}

static struct pair both_told_of_streams(int family)
{
	struct pair pair = connected(family, SOCK_DGRAM);
	want(pair.client, QUIC_EVENT_STREAM_UPDATE);
	want(pair.server, QUIC_EVENT_STREAM_UPDATE);
	return pair;
}

/* STREAM_UPDATE */
static void stream_updates(void)
{
	struct pair pair = both_told_of_streams(AF_INET);
	CHECK(send_on(pair.client, "request", 7, 0, MSG_SYN | MSG_FIN) == 7);
	told_update(pair.server, 0, QUIC_STREAM_RECV_STATE_RECV, 0, 0);
	told_update(pair.server, 0, QUIC_STREAM_RECV_STATE_RECVD, 0, 7);
	receive(pair.server, "request");
	told_update(pair.client, 0, QUIC_STREAM_SEND_STATE_RECVD, 0, 0);

	/* A reset is told on both sides. */
	CHECK(send_on(pair.client, "given up", 8, 2, MSG_SYN) == 8);
	told_update(pair.server, 2, QUIC_STREAM_RECV_STATE_RECV, 0, 0);
	drain(pair.client);
	give_up(pair.client, QUIC_SOCKOPT_STREAM_RESET, 2, 7);
	told_update(pair.client, 2, QUIC_STREAM_SEND_STATE_RESET_RECVD, 7, 8);
	told_update(pair.server, 2, QUIC_STREAM_RECV_STATE_RESET_RECVD, 7, 8);

	/* A request to stop is answered by one. */
	CHECK(send_on(pair.client, "unwanted", 8, 6, MSG_SYN) == 8);
	told_update(pair.server, 6, QUIC_STREAM_RECV_STATE_RECV, 0, 0);
	give_up(pair.server, QUIC_SOCKOPT_STREAM_STOP_SENDING, 6, 9);
	told_update(pair.client, 6, QUIC_STREAM_SEND_STATE_RESET_SENT, 9, 8);
	told_update(pair.client, 6, QUIC_STREAM_SEND_STATE_RESET_RECVD, 9, 8);
	told_update(pair.server, 6, QUIC_STREAM_RECV_STATE_RESET_RECVD, 9, 8);
}

/* Carries datagrams between a client and a server, but none to the server above a length. */
struct relay {
	int front, back;
	struct sockaddr_in client;
	volatile ssize_t most;
};

static void *carry(void *argument)
{
	struct relay *relay = argument;
	static char data[65536];
	for (;;) {
		struct pollfd fds[2] = { { .fd = relay->front, .events = POLLIN },
					 { .fd = relay->back, .events = POLLIN } };
		CHECK(poll(fds, 2, -1) > 0);
		if (fds[0].revents) {
			socklen_t length = sizeof(relay->client);
			ssize_t got = recvfrom(relay->front, data, sizeof(data), 0,
					       (struct sockaddr *)&relay->client, &length);
			if (got >= 0 && got <= relay->most)
				send(relay->back, data, (size_t)got, 0);
		}
		if (fds[1].revents) {
			ssize_t got = recv(relay->back, data, sizeof(data), 0);
			if (got >= 0)
				sendto(relay->front, data, (size_t)got, 0,
				       (struct sockaddr *)&relay->client, sizeof(relay->client));
		}
	}
	return NULL;
}

static void send_at_once(int fd)
{
	struct quic_config config = { .stream_data_nodelay = 1 };
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_CONFIG, &config, sizeof(config)) == 0);
}

/* STREAM_UPDATE: the end came before what is in front of it. */
static void missing_pieces(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	static struct relay relay = { .most = 65536 };
	struct pair pair = {
		.listener = prepared_listener(AF_INET, &address, &length, send_at_once),
	};
	relay.front = socket(AF_INET, SOCK_DGRAM, 0);
	relay.back = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(connect(relay.back, (struct sockaddr *)&address, length) == 0);
	struct sockaddr_in *any = (struct sockaddr_in *)&address;
	any->sin_port = 0;
	CHECK(bind(relay.front, (struct sockaddr *)&address, length) == 0);
	length = sizeof(address);
	CHECK(getsockname(relay.front, (struct sockaddr *)&address, &length) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, carry, &relay) == 0);
	connect_pair(&pair, SOCK_DGRAM, &address, length, send_at_once);
	want(pair.server, QUIC_EVENT_STREAM_UPDATE);
	drain(pair.client);

	static char large[900];
	static char all[1000];
	relay.most = 600;
	CHECK(send_on(pair.client, large, sizeof(large), 2, MSG_SYN) == sizeof(large));
	CHECK(send_on(pair.client, "end", 3, 2, MSG_FIN) == 3);
	told_update(pair.server, 2, QUIC_STREAM_RECV_STATE_RECV, 0, 0);
	told_update(pair.server, 2, QUIC_STREAM_RECV_STATE_SIZE_KNOWN, 0, sizeof(large) + 3);
	relay.most = 65536;
	told_update(pair.server, 2, QUIC_STREAM_RECV_STATE_RECVD, 0, sizeof(large) + 3);
	CHECK(recv(pair.server, all, sizeof(all), 0) == sizeof(large) + 3);
	CHECK(memcmp(all + sizeof(large), "end", 3) == 0);
}

static void permit_little(int fd)
{
	struct quic_transport_param param = { .max_stream_data_uni = 2000, .max_streams_uni = 2,
					      .max_streams_bidi = 2 };
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == 0);
}

/* STREAM_MAX_DATA, STREAM_MAX_STREAM */
static void limits(void)
{
	static char data[4000];
	struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, permit_little);
	want(pair.client, QUIC_EVENT_STREAM_MAX_DATA);
	want(pair.client, QUIC_EVENT_STREAM_MAX_STREAM);
	CHECK(send_on(pair.client, data, 2000, 2, MSG_SYN) == 2000);
	/* There is no room, without waiting. */
	struct quic_stream_info info = { .stream_id = 2 };
	FAILS(send_with(pair.client, "x", 1, QUIC_STREAM_INFO, &info, sizeof(info), MSG_DONTWAIT),
	      ENOSPC);
	FAILS(send(pair.client, "x", 1, MSG_DONTWAIT), EAGAIN);
	await_queued(pair.server, 2000);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 2000);
	struct told next = told(pair.client);
	CHECK(next.type == QUIC_EVENT_STREAM_MAX_DATA);
	CHECK(next.event.max_data.id == 2 && next.event.max_data.max_data == 4000);

	CHECK(send_on(pair.client, NULL, 0, 2, MSG_FIN) == 0);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 0);
	next = told(pair.client);
	/* The kind in two bits, above them how many. */
	CHECK(next.type == QUIC_EVENT_STREAM_MAX_STREAM);
	CHECK((next.event.max_stream & QUIC_STREAM_TYPE_MASK) == 2 &&
	      next.event.max_stream >> 2 == 2);
	for (int64_t id = 0; id < 8; id += 4)
		CHECK(send_on(pair.client, "x", 1, id, MSG_SYN | MSG_FIN) == 1);
	FAILS(send_on(pair.client, "x", 1, 8, MSG_SYN | QUIC_STREAM_FLAG_DONTWAIT), EAGAIN);
	receive(pair.server, "x");
	CHECK(send_on(pair.server, "y", 1, 0, MSG_FIN) == 1);
	/* The limit rises when the server knows that all has arrived; notifications come first. */
	await_queued(pair.client, 1 + 1 + sizeof(uint64_t));
	next = told(pair.client);
	CHECK(next.type == QUIC_EVENT_STREAM_MAX_STREAM && next.event.max_stream == 8);
	receive(pair.client, "y");
	CHECK(send_on(pair.client, "x", 1, 8, MSG_SYN | QUIC_STREAM_FLAG_DONTWAIT) == 1);
}

/* CONNECTION_ID */
static void connection_ids(void)
{
	struct pair pair = connected(AF_INET6, SOCK_DGRAM);
	want(pair.client, QUIC_EVENT_CONNECTION_ID);
	want(pair.server, QUIC_EVENT_CONNECTION_ID);
	struct quic_connection_id_info info = { .dest = 1, .prior_to = 1 };
	while (setsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_CONNECTION_ID, &info,
			  sizeof(info)) != 0) {
		/* They are on their way. */
		CHECK(errno == EINVAL);
		usleep(1000);
	}
	struct told next = told(pair.client);
	CHECK(next.type == QUIC_EVENT_CONNECTION_ID);
	CHECK(next.event.info.dest == 1 && next.event.info.active == 1 &&
	      next.event.info.prior_to == 1);
	next = told(pair.server);
	CHECK(next.type == QUIC_EVENT_CONNECTION_ID);
	CHECK(next.event.info.dest == 0 && next.event.info.prior_to == 1);
}

/* CONNECTION_CLOSE */
static void ends(void)
{
	char byte;
	for (int server_ends = 0; server_ends < 2; server_ends++) {
		struct pair pair = connected(AF_INET, SOCK_DGRAM);
		int one = server_ends ? pair.server : pair.client;
		int other = server_ends ? pair.client : pair.server;
		struct quic_connection_close close_info = { .errcode = 10, .phrase = "enough" };
		want(other, QUIC_EVENT_CONNECTION_CLOSE);
		CHECK(setsockopt(one, SOL_QUIC, QUIC_SOCKOPT_CONNECTION_CLOSE, &close_info,
				 sizeof(close_info)) == 0);
		CHECK(close(one) == 0);
		struct told next = told(other);
		CHECK(next.type == QUIC_EVENT_CONNECTION_CLOSE);
		CHECK(next.event.close.errcode == 10 && next.event.close.frame == 0);
		CHECK(strcmp((char *)next.event.close.phrase, "enough") == 0);
		FAILS(recv(other, &byte, 1, 0), ENOTCONN);
	}
}

/* CONNECTION_MIGRATION is told in features.c, NEW_SESSION_TICKET of GnuTLS in gnutls.c. */

/* KEY_UPDATE */
static void key_updates(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	want(pair.server, QUIC_EVENT_KEY_UPDATE);
	CHECK(setsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0) == 0);
	/* At the latest with what is sent once the handshake is confirmed. */
	for (int turn = 0;; turn++) {
		CHECK(turn < WAIT);
		CHECK(send_on(pair.client, "x", 1, -1, MSG_SYN | MSG_FIN | MSG_CONFIRM) == 1);
		uint8_t data[8];
		int64_t id;
		uint32_t flags;
		CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) > 0);
		if (flags & QUIC_MSG_NOTIFICATION) {
			CHECK(data[0] == QUIC_EVENT_KEY_UPDATE && data[1] == 1);
			return;
		}
	}
}

static void want_tokens(int fd)
{
	want(fd, QUIC_EVENT_NEW_TOKEN);
	want(fd, QUIC_EVENT_NEW_SESSION_TICKET);
}

/* NEW_TOKEN, NEW_SESSION_TICKET */
static void tokens(void)
{
	struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, want_tokens);
	int told_token = 0, told_ticket = 0;
	static uint8_t data[4096], value[4096];
	while (!told_token || !told_ticket) {
		int64_t id;
		uint32_t flags;
		ssize_t length = recv_from(pair.client, data, sizeof(data), &id, &flags);
		CHECK(length > 1 && (flags & QUIC_MSG_NOTIFICATION));
		int is_token = data[0] == QUIC_EVENT_NEW_TOKEN;
		CHECK(is_token || data[0] == QUIC_EVENT_NEW_SESSION_TICKET);
		socklen_t room = sizeof(value);
		CHECK(getsockopt(pair.client, SOL_QUIC,
				 is_token ? QUIC_SOCKOPT_TOKEN : QUIC_SOCKOPT_SESSION_TICKET, value,
				 &room) == 0);
		/* The option says the same, unless the next one has come already. */
		CHECK(room > 0);
		if (is_token)
			CHECK((ssize_t)room == length - 1 &&
			      memcmp(value, data + 1, room) == 0);
		*(is_token ? &told_token : &told_ticket) = 1;
	}
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*test)(void);
	} tests[] = {
		{ "stream_updates", stream_updates },
		{ "missing_pieces", missing_pieces },
		{ "limits", limits },
		{ "connection_ids", connection_ids },
		{ "ends", ends },
		{ "key_updates", key_updates },
		{ "tokens", tokens },
	};
	alarm(120);
	/* All, or the one that is named. */
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (count < 2 || strcmp(arguments[1], tests[i].name) == 0)
			tests[i].test();
	puts("passed");
	return 0;
}
