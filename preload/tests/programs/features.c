/* What connections of QUIC can do, through nothing but the system's calls. */
#include "pair.h"

#include <sys/epoll.h>

#define WAIT 10000

static void set(int fd, int name, const void *value, socklen_t length)
{
	CHECK(setsockopt(fd, SOL_QUIC, name, value, length) == 0);
}

static void want(int fd, uint8_t type)
{
	struct quic_event_option event = { .type = type, .on = 1 };
	set(fd, QUIC_SOCKOPT_EVENT, &event, sizeof(event));
}

/* Receives a notification of this type. */
static void notified(int fd, uint8_t type, uint8_t *data, size_t room)
{
	int64_t id;
	uint32_t flags;
	ssize_t length = recv_from(fd, data, room, &id, &flags);
	CHECK(length > 1 && (flags & QUIC_MSG_NOTIFICATION) && (flags & MSG_EOR));
	CHECK(data[0] == type);
}

static void echo(struct pair *pair)
{
	char data[64];
	int64_t id;
	uint32_t flags;
	CHECK(send_on(pair->client, "ping", 4, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 4);
	CHECK(recv_from(pair->server, data, sizeof(data), &id, &flags) == 4);
	CHECK((flags & QUIC_STREAM_FLAG_FIN) && memcmp(data, "ping", 4) == 0);
	CHECK(send_on(pair->server, "pong", 4, id, QUIC_STREAM_FLAG_FIN) == 4);
	CHECK(recv_from(pair->client, data, sizeof(data), &id, &flags) == 4);
	CHECK((flags & QUIC_STREAM_FLAG_FIN) && memcmp(data, "pong", 4) == 0);
}

static void finish(struct pair *pair)
{
	char byte;
	CHECK(close(pair->client) == 0);
	FAILS(recv(pair->server, &byte, 1, 0), ENOTCONN);
	CHECK(close(pair->server) == 0 && close(pair->listener) == 0);
}

static uint32_t cipher;

static void choose_cipher(int fd)
{
	struct quic_config config = { .payload_cipher_type = cipher };
	set(fd, QUIC_SOCKOPT_CONFIG, &config, sizeof(config));
}

static uint32_t version;

static void choose_version(int fd)
{
	struct quic_config config = { .version = version };
	set(fd, QUIC_SOCKOPT_CONFIG, &config, sizeof(config));
}

static void disable_encryption(int fd)
{
	struct quic_transport_param param = { .disable_1rtt_encryption = 1 };
	set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param));
}

static void protection(void)
{
	/* TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256, TLS_CIPHER_CHACHA20_POLY1305 */
	static const uint32_t ciphers[] = { 51, 52, 54 };
	for (size_t i = 0; i < sizeof(ciphers) / sizeof(*ciphers); i++) {
		cipher = ciphers[i];
		struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, choose_cipher);
		struct quic_config config;
		socklen_t length = sizeof(config);
		CHECK(getsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_CONFIG, &config, &length) == 0);
		CHECK(config.payload_cipher_type == cipher);
		echo(&pair);
		finish(&pair);
	}
	static const uint32_t versions[] = { 1, 0x6b3343cf };
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		version = versions[i];
		struct pair pair = prepared_pair(AF_INET6, SOCK_DGRAM, choose_version);
		echo(&pair);
		finish(&pair);
	}
	struct pair pair = prepared_pair(AF_INET, SOCK_DGRAM, disable_encryption);
	struct quic_transport_param param = { .remote = 1 };
	socklen_t length = sizeof(param);
	CHECK(getsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, &length) == 0);
	CHECK(param.disable_1rtt_encryption == 1);
	echo(&pair);
	finish(&pair);
}

/* Sends until the other side is told of a key update; its data comes after that. */
static void until_updated(int from, int to, uint8_t phase)
{
	uint8_t data[128];
	for (int turn = 0; turn < 1000; turn++) {
		int64_t id;
		uint32_t flags;
		CHECK(send_on(from, "x", 1, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN |
						       QUIC_STREAM_FLAG_UNI) == 1);
		CHECK(recv_from(to, data, sizeof(data), &id, &flags) > 0);
		if (flags & QUIC_MSG_NOTIFICATION) {
			CHECK(data[0] == QUIC_EVENT_KEY_UPDATE && data[1] == phase);
			CHECK(recv_from(to, data, sizeof(data), &id, &flags) == 1);
			return;
		}
	}
	CHECK(!"an update");
}

static void key_updates(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	want(pair.server, QUIC_EVENT_KEY_UPDATE);
	echo(&pair);
	for (uint8_t round = 1; round < 4; round++) {
		/* The one before must be through. */
		while (setsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_KEY_UPDATE, NULL, 0) != 0) {
			CHECK(errno == EINVAL || errno == EAGAIN);
			usleep(1000);
		}
		until_updated(pair.client, pair.server, round & 1);
		echo(&pair);
	}
	finish(&pair);
}

/* An address that was free a moment ago. */
static struct sockaddr_storage free_address(int family)
{
	struct sockaddr_storage address = { .ss_family = (sa_family_t)family };
	socklen_t length = sizeof(address);
	int probe = socket(family, SOCK_DGRAM, 0);
	if (family == AF_INET)
		((struct sockaddr_in *)&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&address)->sin6_addr = in6addr_loopback;
	CHECK(bind(probe, (struct sockaddr *)&address, length) == 0);
	CHECK(getsockname(probe, (struct sockaddr *)&address, &length) == 0 && close(probe) == 0);
	return address;
}

static void migration(int family)
{
	struct pair pair = connected(family, SOCK_DGRAM);
	struct sockaddr_storage before, after, seen;
	socklen_t length = sizeof(before);
	uint8_t data[128];
	want(pair.client, QUIC_EVENT_CONNECTION_MIGRATION);
	want(pair.server, QUIC_EVENT_CONNECTION_MIGRATION);
	echo(&pair);
	CHECK(getsockname(pair.client, (struct sockaddr *)&before, &length) == 0);
	after = free_address(family);
	/* RFC 9000, Section 9: not by a server, and not before the handshake is confirmed. */
	FAILS(setsockopt(pair.server, SOL_QUIC, QUIC_SOCKOPT_CONNECTION_MIGRATION, &after, length),
	      EINVAL);
	while (setsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_CONNECTION_MIGRATION, &after,
			  length) != 0) {
		CHECK(errno == EAGAIN);
		usleep(1000);
	}
	notified(pair.client, QUIC_EVENT_CONNECTION_MIGRATION, data, sizeof(data));
	CHECK(data[1] == 1);
	CHECK(send(pair.client, "x", 1, MSG_SYN | MSG_FIN) == 1);
	notified(pair.server, QUIC_EVENT_CONNECTION_MIGRATION, data, sizeof(data));
	CHECK(data[1] == 0);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	length = sizeof(seen);
	CHECK(getpeername(pair.server, (struct sockaddr *)&seen, &length) == 0);
	CHECK(memcmp(&seen, &after, length) == 0 && memcmp(&seen, &before, length) != 0);
	echo(&pair);
	finish(&pair);
}

static struct sockaddr_storage preferred_address;

static void prefer_address(int fd)
{
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_CONNECTION_MIGRATION, &preferred_address,
			 sizeof(preferred_address)) == 0);
}

static void want_moves(int fd)
{
	want(fd, QUIC_EVENT_CONNECTION_MIGRATION);
}

/* A server tells its client before the handshake where it would rather be. */
static void preferred(int family)
{
	struct sockaddr_storage address, seen;
	socklen_t length;
	uint8_t data[128];
	preferred_address = free_address(family);
	struct pair pair = { .listener = listener(family, &address, &length),
			     .accepted = prefer_address };
	connect_pair(&pair, SOCK_DGRAM, &address, length, want_moves);
	notified(pair.client, QUIC_EVENT_CONNECTION_MIGRATION, data, sizeof(data));
	length = sizeof(seen);
	CHECK(getpeername(pair.client, (struct sockaddr *)&seen, &length) == 0);
	CHECK(memcmp(&seen, &preferred_address, length) == 0);
	echo(&pair);
	length = sizeof(seen);
	CHECK(getsockname(pair.server, (struct sockaddr *)&seen, &length) == 0);
	CHECK(memcmp(&seen, &preferred_address, length) == 0);
	/* Others still begin where the server listens. */
	struct pair other = { .listener = pair.listener };
	connect_pair(&other, SOCK_DGRAM, &address, length, NULL);
	echo(&other);
	CHECK(close(other.client) == 0 && close(other.server) == 0);
	finish(&pair);
}

/* So it can in the other family, by sockets that can be in both. */
static void preferred_elsewhere(int family)
{
	struct sockaddr_storage address = free_address(family), seen;
	socklen_t length = sizeof(address);
	uint8_t data[128];
	preferred_address = free_address(family == AF_INET ? AF_INET6 : AF_INET);
	struct pair pair = { .listener = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC),
			     .accepted = prefer_address,
			     .family = AF_INET6 };
	CHECK(bind(pair.listener, (struct sockaddr *)&address, length) == 0);
	set(pair.listener, QUIC_SOCKOPT_ALPN, "test", 4);
	CHECK(listen(pair.listener, 1) == 0);
	connect_pair(&pair, SOCK_DGRAM, &address, length, want_moves);
	notified(pair.client, QUIC_EVENT_CONNECTION_MIGRATION, data, sizeof(data));
	length = sizeof(seen);
	CHECK(getpeername(pair.client, (struct sockaddr *)&seen, &length) == 0);
	CHECK(memcmp(&seen, &preferred_address, length) == 0);
	length = sizeof(seen);
	CHECK(getsockname(pair.client, (struct sockaddr *)&seen, &length) == 0);
	CHECK(seen.ss_family == preferred_address.ss_family);
	echo(&pair);
	finish(&pair);
}

static void permit_datagrams(int fd)
{
	struct quic_transport_param param = { .max_datagram_frame_size = 1400 };
	set(fd, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param));
}

static void datagrams(void)
{
	struct pair without = connected(AF_INET, SOCK_DGRAM);
	FAILS(send(without.client, "x", 1, QUIC_MSG_DATAGRAM), EINVAL);
	finish(&without);

	struct pair pair = prepared_pair(AF_INET6, SOCK_DGRAM, permit_datagrams);
	static char data[2000];
	int64_t id;
	uint32_t flags;
	CHECK(send(pair.client, "datagram", 8, QUIC_MSG_DATAGRAM) == 8);
	CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 8);
	CHECK((flags & QUIC_MSG_DATAGRAM) && (flags & MSG_EOR) && memcmp(data, "datagram", 8) == 0);
	/* A record that does not fit is received in pieces. */
	CHECK(send(pair.server, "answer", 6, QUIC_MSG_DATAGRAM) == 6);
	CHECK(recv_from(pair.client, data, 4, &id, &flags) == 4 && !(flags & MSG_EOR));
	CHECK(recv_from(pair.client, data, 4, &id, &flags) == 2 && (flags & MSG_EOR));
	FAILS(send(pair.client, data, sizeof(data), QUIC_MSG_DATAGRAM), EMSGSIZE);
	FAILS(send(pair.client, data, 0, QUIC_MSG_DATAGRAM), EMSGSIZE);
	echo(&pair);
	finish(&pair);
}

/* More of them than may be open at a time. */
static void streams(int most)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	for (int count = 0; count < most; count++)
		echo(&pair);
	finish(&pair);
}

/* Listeners on one address are told apart by protocol. */
static void protocols(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	struct pair pair = { .listener = listener(AF_INET, &address, &length) };
	int other = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	int third = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	set(other, QUIC_SOCKOPT_ALPN, "h3,smbd", 7);
	set(third, QUIC_SOCKOPT_ALPN, "test,x", 6);
	CHECK(bind(other, (struct sockaddr *)&address, length) == 0);
	CHECK(bind(third, (struct sockaddr *)&address, length) == 0);
	CHECK(listen(other, 1) == 0);
	FAILS(listen(third, 1), EADDRINUSE);
	connect_pair(&pair, SOCK_DGRAM, &address, length, NULL);
	struct timeval time = { .tv_usec = 1000 };
	CHECK(setsockopt(other, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	FAILS(accept(other, NULL, NULL), EAGAIN);
	echo(&pair);
	finish(&pair);
}

#define LOAD (8 << 20)

static void *send_load(void *argument)
{
	static uint8_t data[70000];
	uint32_t seed = 1;
	size_t sent = 0;
	int fd = *(int *)argument;
	while (sent < LOAD) {
		seed = seed * 1664525 + 1013904223;
		size_t length = 1 + seed % sizeof(data);
		if (length > LOAD - sent)
			length = LOAD - sent;
		for (size_t i = 0; i < length; i++)
			data[i] = (uint8_t)((sent + i) * 31 >> 3);
		ssize_t part = send(fd, data, length, sent == 0 ? MSG_SYN : 0);
		CHECK(part > 0);
		sent += (size_t)part;
	}
	CHECK(send(fd, NULL, 0, MSG_FIN) == 0);
	return NULL;
}

/* Whoever waits for edges hears of all of them, however fast data comes. */
static void load(uint32_t events)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	static uint8_t data[50000];
	struct epoll_event event = { .events = EPOLLIN | events }, told;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	pthread_t thread;
	size_t received = 0;
	uint32_t flags = 0;
	CHECK(fcntl(pair.server, F_SETFL, O_NONBLOCK) == 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
	CHECK(pthread_create(&thread, NULL, send_load, &pair.client) == 0);
	while (!(flags & QUIC_STREAM_FLAG_FIN)) {
		CHECK(epoll_wait(epoll, &told, 1, WAIT) == 1);
		do {
			int64_t id;
			ssize_t length = recv_from(pair.server, data, sizeof(data), &id, &flags);
			if (length < 0) {
				CHECK(errno == EAGAIN);
				break;
			}
			for (ssize_t i = 0; i < length; i++)
				CHECK(data[i] == (uint8_t)((received + (size_t)i) * 31 >> 3));
			received += (size_t)length;
		} while ((events & EPOLLET) && !(flags & QUIC_STREAM_FLAG_FIN));
	}
	CHECK(received == LOAD && pthread_join(thread, NULL) == 0);
	CHECK(fcntl(pair.server, F_SETFL, 0) == 0);
	finish(&pair);
	CHECK(close(epoll) == 0);
}

/* What IP says of the next packet that comes to a UDP socket: its time to live, or its class. */
static int of_next(int udp, int type)
{
	char data[2048];
	_Alignas(struct cmsghdr) char control[64];
	struct iovec part = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	unsigned char value[sizeof(int)] = { 0 };

	CHECK(recvmsg(udp, &message, 0) > 0);
	for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
		if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == type)
			memcpy(value, CMSG_DATA(one), type == IP_TTL ? sizeof(int) : 1);
	return value[0];
}

static int ttl_of_next(int udp)
{
	return of_next(udp, IP_TTL);
}

static int got(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	CHECK(getsockopt(fd, level, name, &value, &size) == 0 && size == sizeof(value));
	return value;
}

/* Options of the UDP socket below, before and after bind. */
static void udp_options(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in own = at;
	socklen_t size = sizeof(at);
	int udp = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	int on = 1, seven = 7, nine = 9, none = 0, class = 0xbb;
	char name[16] = "";

	CHECK(bind(udp, (struct sockaddr *)&at, size) == 0);
	CHECK(getsockname(udp, (struct sockaddr *)&at, &size) == 0);
	CHECK(setsockopt(udp, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)) == 0);
	CHECK(setsockopt(udp, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)) == 0);

	CHECK(got(fd, IPPROTO_IP, IP_TTL) > 7 && got(fd, SOL_SOCKET, SO_PRIORITY) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_TTL, &seven, sizeof(seven)) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "no such one", 12), ENODEV);
	FAILS(setsockopt(fd, IPPROTO_IP, IP_TTL, &none, sizeof(none)), EINVAL);
	/* Expedited forwarding; the two bits below are ECN's. */
	CHECK(got(fd, IPPROTO_IP, IP_TOS) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_TOS, &class, sizeof(class)) == 0);
	FAILS(setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class)), ENOPROTOOPT);
	FAILS(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &none, sizeof(none)), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)), ENOPROTOOPT);
	FAILS(setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &nine, sizeof(nine)), ENOPROTOOPT);
	CHECK(bind(fd, (struct sockaddr *)&own, sizeof(own)) == 0);
	CHECK(got(fd, IPPROTO_IP, IP_TTL) == 7 && got(fd, IPPROTO_IP, IP_TOS) == 0xb8);
	size = sizeof(name);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &size) == 0);
	CHECK(size == 3 && strcmp(name, "lo") == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &on, sizeof(on)) == 0);
	CHECK(got(fd, SOL_SOCKET, SO_PRIORITY) == 1);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	int (*handshake)(int, const char *, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_client_handshake");
	FAILS(handshake(fd, "localhost", "test", NULL, given("PIN")), EAGAIN);
	CHECK(ttl_of_next(udp) == 7);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_TTL, &nine, sizeof(nine)) == 0);
	CHECK(got(fd, IPPROTO_IP, IP_TTL) == 9);
	/* What is sent again goes out with it. */
	while (ttl_of_next(udp) != 9)
		;
	CHECK((of_next(udp, IP_TOS) & ~3) == 0xb8);
	CHECK(close(fd) == 0 && close(udp) == 0);

	fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &nine, sizeof(nine)) == 0);
	CHECK(got(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS) == 9);
	CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class)) == 0);
	CHECK(got(fd, IPPROTO_IPV6, IPV6_TCLASS) == 0xb8);
	CHECK(close(fd) == 0);
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	alarm(120);
	if (strcmp(what, "protection") == 0) {
		protection();
	} else if (strcmp(what, "keys") == 0) {
		key_updates();
	} else if (strcmp(what, "migration") == 0) {
		migration(AF_INET);
		migration(AF_INET6);
	} else if (strcmp(what, "preferred") == 0) {
		preferred(AF_INET);
		preferred(AF_INET6);
		preferred_elsewhere(AF_INET);
		preferred_elsewhere(AF_INET6);
	} else if (strcmp(what, "datagrams") == 0) {
		datagrams();
	} else if (strcmp(what, "streams") == 0) {
		streams(count > 2 ? atoi(arguments[2]) : 2000);
	} else if (strcmp(what, "protocols") == 0) {
		protocols();
	} else if (strcmp(what, "udp_options") == 0) {
		udp_options();
	} else if (strcmp(what, "load") == 0) {
		load(0);
		load(EPOLLET);
	} else {
		fprintf(stderr, "which test?\n");
		return 2;
	}
	puts("passed");
	return 0;
}
