/* Both ends of a connection, of which each has GnuTLS perform its handshake. */
#include "tls.h"

struct served {
	int listener;
	struct tls_options options;
	int early_data;
};

static void *serve_with_gnutls(void *argument)
{
	struct served *served = argument;
	char data[64];
	int64_t id;
	uint32_t flags;
	int fd = accept(served->listener, NULL, NULL);
	CHECK(fd >= 0);
	gnutls_session_t session = session_for(fd, &served->options);
	handshake(session);
	served->early_data = (gnutls_session_get_flags(session) & GNUTLS_SFLAGS_EARLY_DATA) != 0;
	if (served->options.with_tickets)
		CHECK(gnutls_session_ticket_send(session, 1, 0) == 0);
	CHECK(recv_from(fd, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 2 && (flags & QUIC_STREAM_FLAG_FIN) && memcmp(data, "hello", 5) == 0);
	CHECK(send_on(fd, "world", 5, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 5);
	FAILS(recv(fd, data, sizeof(data), 0), ENOTCONN);
	CHECK(close(fd) == 0);
	gnutls_deinit(session);
	return NULL;
}

static void say_hello(int fd)
{
	CHECK(send_on(fd, "hello", 5, -1,
		      QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_UNI | QUIC_STREAM_FLAG_FIN) == 5);
}

static void hear_world(int fd)
{
	char data[64];
	int64_t id;
	uint32_t flags;
	CHECK(recv_from(fd, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 1 && memcmp(data, "world", 5) == 0);
}

static int client_of(const struct sockaddr_storage *address, socklen_t length)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(fd >= 0);
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, "test", 4) == 0);
	CHECK(connect(fd, (const struct sockaddr *)address, length) == 0);
	return fd;
}

static void once(int with_psk, int with_ccm)
{
	struct sockaddr_storage address;
	socklen_t length;
	struct served served = {
		.listener = listener(AF_INET6, &address, &length),
		.options = { .is_server = 1, .with_psk = with_psk, .with_ccm = with_ccm, .alpn = "test" },
	};
	struct tls_options options = { .with_psk = with_psk, .with_ccm = with_ccm, .alpn = "test" };
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve_with_gnutls, &served) == 0);
	int fd = client_of(&address, length);
	gnutls_session_t session = session_for(fd, &options);
	handshake(session);
	say_hello(fd);
	hear_world(fd);
	CHECK(close(fd) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	gnutls_deinit(session);
}

/* A session for the next connection, from the ticket that the socket got. */
static gnutls_datum_t session_data(int fd, gnutls_session_t session)
{
	uint8_t ticket[4096];
	socklen_t length = sizeof(ticket);
	gnutls_datum_t data;
	CHECK(getsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_SESSION_TICKET, ticket, &length) == 0);
	CHECK(length >= 64);
	int answer = gnutls_handshake_write(session, GNUTLS_ENCRYPTION_LEVEL_APPLICATION, ticket,
					    length);
	CHECK(answer == 0 || !gnutls_error_is_fatal(answer));
	CHECK(gnutls_session_get_data2(session, &data) == 0);
	return data;
}

/* With what is stored of one connection, the next one sends data before its handshake. */
static void early_data(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	struct served served = {
		.listener = listener(AF_INET6, &address, &length),
		.options = { .is_server = 1, .with_tickets = 1, .alpn = "test" },
	};
	struct tls_options options = { .with_tickets = 1, .alpn = "test" };
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve_with_gnutls, &served) == 0);
	int fd = client_of(&address, length);
	struct quic_event_option event = { .type = QUIC_EVENT_NEW_SESSION_TICKET, .on = 1 };
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_EVENT, &event, sizeof(event)) == 0);
	gnutls_session_t session = session_for(fd, &options);
	handshake(session);
	uint8_t told[4096];
	int64_t id;
	uint32_t flags;
	ssize_t got = recv_from(fd, told, sizeof(told), &id, &flags);
	CHECK(got > 64 && (flags & QUIC_MSG_NOTIFICATION));
	CHECK(told[0] == QUIC_EVENT_NEW_SESSION_TICKET);
	options.session = session_data(fd, session);
	struct quic_transport_param param = { .remote = 1 };
	socklen_t size = sizeof(param);
	CHECK(getsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, &size) == 0);
	CHECK(param.remote == 1 && param.max_data > 0);
	say_hello(fd);
	hear_world(fd);
	CHECK(close(fd) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(!served.early_data);
	gnutls_deinit(session);

	CHECK(pthread_create(&thread, NULL, serve_with_gnutls, &served) == 0);
	fd = client_of(&address, length);
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == 0);
	say_hello(fd);
	session = session_for(fd, &options);
	handshake(session);
	hear_world(fd);
	CHECK(gnutls_session_is_resumed(session));
	CHECK(gnutls_session_get_flags(session) & GNUTLS_SFLAGS_EARLY_DATA);
	CHECK(close(fd) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(served.early_data);
	gnutls_deinit(session);
	gnutls_free(options.session.data);
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	alarm(120);
	if (strcmp(what, "certificate") == 0) {
		once(0, 0);
	} else if (strcmp(what, "psk") == 0) {
		once(1, 0);
	} else if (strcmp(what, "ccm") == 0) {
		once(0, 1);
	} else if (strcmp(what, "early") == 0) {
		early_data();
	} else {
		fprintf(stderr, "which test?\n");
		return 2;
	}
	puts("passed");
	return 0;
}
