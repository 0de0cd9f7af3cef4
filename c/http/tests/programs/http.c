/* What <quicket/http.h> says, against the server of programs.rs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <quicket/http.h>
#include <quicket/quicket.h>

#define PATIENCE 20000

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: %s (errno %d, %s; %s)\n", __FILE__, __LINE__,   \
				#condition, errno, strerror(errno), quicket_http_error());      \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

#define FAILS(call, error)                                                                      \
	do {                                                                                    \
		errno = 0;                                                                      \
		CHECK((long)(call) == -1 && errno == (error));                                  \
	} while (0)

#define IS_NULL(call, error)                                                                    \
	do {                                                                                    \
		errno = 0;                                                                      \
		CHECK((call) == NULL && errno == (error));                                      \
	} while (0)

static const char *given(const char *name)
{
	const char *value = getenv(name);

	CHECK(value != NULL);
	return value;
}

/* The server's URL with a path. Texts of a few calls are there at once. */
static const char *url(const char *path)
{
	static char urls[8][256];
	static int next;
	char *place = urls[next++ % 8];

	snprintf(place, sizeof(urls[0]), "https://localhost:%s%s", given("PORT"), path);
	return place;
}

static struct quicket_http *client(const char *sessions, uint64_t flags)
{
	struct quicket_http_options options = {
		.size = sizeof(options), .pins = given("PIN"), .hosts = "localhost=127.0.0.1",
		.sessions = sessions, .flags = flags,
	};
	struct quicket_http *http = quicket_http_new(&options);

	CHECK(http != NULL);
	return http;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* How many threads of clients and their endpoints there are; all have signals blocked. */
static int library_threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	CHECK(folder != NULL);
	while ((entry = readdir(folder)) != NULL) {
		char path[300], line[256];
		int is_ours = 0, is_known = 0;
		unsigned long long blocked = 0;
		FILE *status;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		/* It may have ended. */
		if (entry->d_name[0] == '.' || (status = fopen(path, "r")) == NULL)
			continue;
		while (fgets(line, sizeof(line), status) != NULL) {
			is_ours |= strcmp(line, "Name:\tquicket-http\n") == 0 || strcmp(line, "Name:\tquicket\n") == 0;
			is_known |= sscanf(line, "SigBlk: %llx", &blocked) == 1;
		}
		fclose(status);
		CHECK(!is_ours || !is_known || (blocked >> (SIGTERM - 1)) & 1);
		count += is_ours && is_known;
	}
	closedir(folder);
	return count;
}

/* Waits until none of them is there. */
static void threads_end(void)
{
	double deadline = now() + PATIENCE;

	while (library_threads() > 0) {
		CHECK(now() < deadline);
		usleep(1000);
	}
}

/* Reads all content, in small pieces; how much. */
static size_t read_all(struct quicket_exchange *exchange, char *to, size_t room)
{
	size_t all = 0;
	ssize_t length;

	while ((length = quicket_exchange_read(exchange, to + all, room - all < 777 ? room - all : 777, PATIENCE)) > 0)
		all += (size_t)length;
	CHECK(length == 0);
	return all;
}

static void requests(struct quicket_http *http)
{
	static char content[1 << 17];
	const char *name, *value;
	size_t n, seen = 0;
	struct quicket_exchange *exchange = quicket_exchange_new(http, "PUT", url("/echo"));

	CHECK(exchange != NULL);
	CHECK(quicket_exchange_add_field(exchange, "x-said", "one") == 0);
	CHECK(quicket_exchange_add_field(exchange, "X-Said", "two") == 0);
	FAILS(quicket_exchange_add_field(exchange, "a b", "c"), EINVAL);
	FAILS(quicket_exchange_add_field(exchange, "a", "b\r\nc: d"), EINVAL);
	FAILS(quicket_exchange_status(exchange, 0), EINVAL);
	FAILS(quicket_exchange_write(exchange, "a", 1, 0), EINVAL);
	CHECK(quicket_exchange_send(exchange, "hello", 5) == 0);
	FAILS(quicket_exchange_send(exchange, "hello", 5), EINVAL);
	FAILS(quicket_exchange_add_field(exchange, "x-late", "1"), EINVAL);
	CHECK(quicket_exchange_status(exchange, PATIENCE) == 200);
	CHECK(strcmp(quicket_exchange_field(exchange, "METHOD", 0), "PUT") == 0);
	CHECK(strcmp(quicket_exchange_field(exchange, "x-said", 1), "two") == 0);
	errno = 0;
	CHECK(quicket_exchange_field(exchange, "x-said", 2) == NULL && errno == 0);
	for (n = 0; quicket_exchange_each_field(exchange, n, &name, &value) == 1; n++)
		seen += strcmp(name, "x-said") == 0;
	CHECK(seen == 2 && quicket_exchange_each_field(exchange, n, NULL, NULL) == 0);
	FAILS(quicket_exchange_trailers(exchange, PATIENCE), EINVAL);
	IS_NULL(quicket_exchange_trailer(exchange, "length", 0), EINVAL);
	CHECK(read_all(exchange, content, sizeof(content)) == 5 && memcmp(content, "hello", 5) == 0);
	CHECK(quicket_exchange_read(exchange, content, 1, 0) == 0);
	CHECK(quicket_exchange_trailers(exchange, PATIENCE) == 1);
	CHECK(strcmp(quicket_exchange_trailer(exchange, "length", 0), "5") == 0);
	CHECK(quicket_exchange_each_trailer(exchange, 0, &name, &value) == 1 && strcmp(name, "length") == 0);
	CHECK(quicket_exchange_each_trailer(exchange, 1, &name, &value) == 0);
	quicket_exchange_free(exchange);

	exchange = quicket_http_get(http, url("/missing"), PATIENCE);
	CHECK(exchange != NULL && quicket_exchange_status(exchange, 0) == 404);
	CHECK(read_all(exchange, content, sizeof(content)) == 0);
	CHECK(quicket_exchange_trailers(exchange, PATIENCE) == 0);
	quicket_exchange_free(exchange);
}

/* A body that is written while the answer comes. */
static void bodies(struct quicket_http *http)
{
	static char piece[100000], back[100000];
	struct quicket_exchange *exchange = quicket_exchange_new(http, "POST", url("/echo"));

	CHECK(quicket_exchange_send_head(exchange) == 0);
	CHECK(quicket_exchange_status(exchange, PATIENCE) == 200);
	for (int round = 0; round < 20; round++) {
		size_t all = 0;

		memset(piece, 'a' + round, sizeof(piece));
		CHECK(quicket_exchange_write(exchange, piece, sizeof(piece), PATIENCE) == sizeof(piece));
		while (all < sizeof(back)) {
			ssize_t length = quicket_exchange_read(exchange, back + all, sizeof(back) - all, PATIENCE);

			CHECK(length > 0);
			all += (size_t)length;
		}
		CHECK(memcmp(piece, back, sizeof(back)) == 0);
	}
	FAILS(quicket_exchange_read(exchange, back, sizeof(back), 10), EAGAIN);
	CHECK(quicket_exchange_finish(exchange, PATIENCE) == 0);
	FAILS(quicket_exchange_finish(exchange, PATIENCE), EINVAL);
	CHECK(quicket_exchange_read(exchange, back, sizeof(back), PATIENCE) == 0);
	CHECK(quicket_exchange_trailers(exchange, PATIENCE) == 1);
	CHECK(strcmp(quicket_exchange_trailer(exchange, "length", 0), "2000000") == 0);
	quicket_exchange_free(exchange);

	/* Nobody reads on: some is taken, and then no more until the time is over, which takes nothing away. */
	exchange = quicket_exchange_new(http, "POST", url("/deaf"));
	CHECK(quicket_exchange_send_head(exchange) == 0);
	ssize_t taken;
	while ((taken = quicket_exchange_write(exchange, piece, sizeof(piece), 300)) == sizeof(piece))
		;
	CHECK(taken < (ssize_t)sizeof(piece) && (taken >= 0 || errno == EAGAIN));
	FAILS(quicket_exchange_finish(exchange, 0), EAGAIN);
	quicket_exchange_free(exchange);

	/* The server refuses the body, and its answer is there. */
	exchange = quicket_exchange_new(http, "POST", url("/refused"));
	CHECK(quicket_exchange_send_head(exchange) == 0);
	while (quicket_exchange_write(exchange, piece, sizeof(piece), PATIENCE) > 0)
		;
	CHECK(errno == EPIPE);
	CHECK(quicket_exchange_status(exchange, PATIENCE) == 413);
	quicket_exchange_free(exchange);
}

/* What is not as long as it says is an error, not an end. */
static void lengths(struct quicket_http *http)
{
	char content[100];
	ssize_t length;
	struct quicket_exchange *exchange;
	const char *paths[] = { "/short", "/long" };

	for (int n = 0; n < 2; n++) {
		exchange = quicket_http_get(http, url(paths[n]), PATIENCE);
		CHECK(exchange != NULL);
		while ((length = quicket_exchange_read(exchange, content, sizeof(content), PATIENCE)) > 0)
			;
		CHECK(length == -1 && errno == EPROTO);
		CHECK(strstr(quicket_http_error(), "Content-Length") != NULL);
		FAILS(quicket_exchange_trailers(exchange, PATIENCE), EPROTO);
		quicket_exchange_free(exchange);
	}
	IS_NULL(quicket_http_get(http, url("/wrong"), PATIENCE), EPROTO);

	exchange = quicket_exchange_new(http, "HEAD", url("/head"));
	CHECK(quicket_exchange_send(exchange, NULL, 0) == 0);
	CHECK(quicket_exchange_status(exchange, PATIENCE) == 200);
	CHECK(quicket_exchange_read(exchange, content, sizeof(content), PATIENCE) == 0);
	quicket_exchange_free(exchange);
}

/* The time of a call is one for all that it waits for. */
static void deadlines(struct quicket_http *http)
{
	char content[100];
	struct quicket_exchange *exchange = quicket_exchange_new(http, "GET", url("/slow"));

	/* Longer than the status takes, or the content, and shorter than both. */
	CHECK(quicket_exchange_send(exchange, NULL, 0) == 0);
	FAILS(quicket_exchange_read(exchange, content, sizeof(content), 600), EAGAIN);
	CHECK(quicket_exchange_read(exchange, content, sizeof(content), PATIENCE) == 7);
	CHECK(quicket_exchange_read(exchange, content, sizeof(content), PATIENCE) == 0);
	quicket_exchange_free(exchange);
}

static void failures(struct quicket_http *http)
{
	char place[8];
	struct quicket_exchange *exchange;
	struct quicket_exchange_info info = { .size = sizeof(info) };
	struct { struct quicket_http_options known; uint64_t more; } later = { .known.size = sizeof(later), .more = 1 };
	struct quicket_http_options wrong = { .size = sizeof(wrong), .flags = 1 << 20 };

	IS_NULL(quicket_http_new(&wrong), EINVAL);
	wrong = (struct quicket_http_options){ .size = 4 };
	IS_NULL(quicket_http_new(&wrong), EINVAL);
	wrong = (struct quicket_http_options){ .size = sizeof(wrong), .ca_file = "/nonexistent" };
	IS_NULL(quicket_http_new(&wrong), EINVAL);
	CHECK(strstr(quicket_http_error(), "/nonexistent") != NULL);
	IS_NULL(quicket_http_new(&later.known), E2BIG);
	later.more = 0;
	quicket_http_free(quicket_http_new(&later.known));
	quicket_http_free(NULL);
	quicket_exchange_free(NULL);
	IS_NULL(quicket_http_get(NULL, "https://localhost/", 0), EINVAL);
	IS_NULL(quicket_http_get(http, NULL, 0), EINVAL);
	IS_NULL(quicket_http_get(http, "http://localhost/", PATIENCE), EINVAL);
	IS_NULL(quicket_http_get(http, "https://user:secret@localhost/", PATIENCE), EINVAL);
	CHECK(strstr(quicket_http_error(), "secret") == NULL);
	IS_NULL(quicket_exchange_new(http, "A B", url("/")), EINVAL);
	IS_NULL(quicket_exchange_new(http, "GET", "http://localhost/"), EINVAL);
	IS_NULL(quicket_exchange_new(http, "GET", "https://user:secret@localhost/"), EINVAL);
	IS_NULL(quicket_exchange_new(http, "GET", "/path"), EINVAL);
	IS_NULL(quicket_exchange_new(http, "GET", "localhost:443"), EINVAL);
	IS_NULL(quicket_exchange_new(http, "GET", ""), EINVAL);
	FAILS(quicket_exchange_status(NULL, 0), EINVAL);
	IS_NULL(quicket_http_get(http, "https://name.invalid/", PATIENCE), ENOENT);
	IS_NULL(quicket_http_get(http, url("/stall"), 50), EAGAIN);
	IS_NULL(quicket_http_get(http, url("/reset"), PATIENCE), ECONNRESET);

	/* What has failed stays so. */
	exchange = quicket_exchange_new(http, "GET", "https://localhost:1/");
	CHECK(quicket_exchange_send(exchange, NULL, 0) == 0);
	FAILS(quicket_exchange_status(exchange, PATIENCE), ECONNREFUSED);
	FAILS(quicket_exchange_read(exchange, place, sizeof(place), 0), ECONNREFUSED);
	IS_NULL(quicket_exchange_field(exchange, "a", 0), ECONNREFUSED);
	FAILS(quicket_exchange_info(exchange, &info), ECONNREFUSED);
	quicket_exchange_free(exchange);

	exchange = quicket_exchange_new(http, "GET", url("/echo"));
	for (int n = 0; n < 256; n++)
		CHECK(quicket_exchange_add_field(exchange, "a", "b") == 0);
	FAILS(quicket_exchange_add_field(exchange, "a", "b"), E2BIG);
	quicket_exchange_free(exchange);

	/* Fields that HTTP/3 has not. */
	exchange = quicket_exchange_new(http, "GET", url("/echo"));
	FAILS(quicket_exchange_add_field(exchange, "Connection", "close"), EINVAL);
	FAILS(quicket_exchange_add_field(exchange, "transfer-encoding", "chunked"), EINVAL);
	FAILS(quicket_exchange_add_field(exchange, "te", "gzip"), EINVAL);
	CHECK(quicket_exchange_add_field(exchange, "te", "trailers") == 0);
	quicket_exchange_free(exchange);

	/* A server that nobody trusts. */
	struct quicket_http_options strange = { .size = sizeof(strange), .ca_file = given("STRANGER"), .hosts = "localhost=127.0.0.1" };
	struct quicket_http *careful = quicket_http_new(&strange);
	CHECK(careful != NULL);
	IS_NULL(quicket_http_get(careful, url("/"), PATIENCE), EPROTO);
	quicket_http_free(careful);
}

/* Asks once, and tells how its connection has begun. */
static uint64_t early_data_of(const char *sessions, uint64_t flags)
{
	struct quicket_http *http;
	struct quicket_exchange *exchange;
	double begun;
	struct { struct quicket_exchange_info known; uint64_t more; } info = { .known.size = sizeof(info), .more = 7 };
	char place[8];

	threads_end();
	http = client(sessions, flags);
	exchange = quicket_http_get(http, url("/echo"), PATIENCE);
	CHECK(exchange != NULL);
	CHECK(quicket_exchange_read(exchange, place, sizeof(place), PATIENCE) == 0);
	CHECK(quicket_exchange_info(exchange, &info.known) == 0);
	CHECK(info.known.remote.ss_family == AF_INET && info.known.path_changes == 0 && info.more == 7);
	/* The client goes on until its last exchange has ended. */
	quicket_http_free(http);
	CHECK(quicket_exchange_status(exchange, 0) == 200);
	CHECK(library_threads() > 0);
	begun = now();
	quicket_exchange_free(exchange);
	CHECK(now() - begun < 400);
	threads_end();
	return info.known.early_data;
}

static void sessions(void)
{
	const char *folder = given("SESSIONS");

	CHECK(early_data_of(folder, 0) == QUICKET_EARLY_DATA_NONE);
	CHECK(early_data_of(folder, QUICKET_HTTP_NO_EARLY_DATA) == QUICKET_EARLY_DATA_NONE);
	CHECK(early_data_of(folder, 0) == QUICKET_EARLY_DATA_ACCEPTED);
	CHECK(early_data_of(NULL, QUICKET_HTTP_NO_SESSIONS | QUICKET_HTTP_STAY) == QUICKET_EARLY_DATA_NONE);
}

static void *ask_often(void *http)
{
	char place[8];

	for (int n = 0; n < 20; n++) {
		struct quicket_exchange *exchange = quicket_http_get(http, url("/echo"), PATIENCE);

		CHECK(exchange != NULL && quicket_exchange_read(exchange, place, sizeof(place), PATIENCE) == 0);
		quicket_exchange_free(exchange);
	}
	return NULL;
}

static void threads(struct quicket_http *http)
{
	pthread_t all[4];

	url("/");
	for (int n = 0; n < 4; n++)
		CHECK(pthread_create(&all[n], NULL, ask_often, http) == 0);
	for (int n = 0; n < 4; n++)
		CHECK(pthread_join(all[n], NULL) == 0);
}

/* A child has nothing of it, and takes nothing away. */
static void forks(struct quicket_http *http)
{
	char place[8];
	struct quicket_exchange *exchange = quicket_http_get(http, url("/echo"), PATIENCE);
	int status;
	pid_t child = fork();

	CHECK(exchange != NULL && child >= 0);
	if (child == 0) {
		alarm(20);
		IS_NULL(quicket_http_get(http, url("/echo"), PATIENCE), EBADFD);
		FAILS(quicket_exchange_read(exchange, place, sizeof(place), PATIENCE), EBADFD);
		quicket_exchange_free(exchange);
		quicket_http_free(http);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(quicket_exchange_read(exchange, place, sizeof(place), PATIENCE) == 0);
	quicket_exchange_free(exchange);
}

int main(void)
{
	struct quicket_http *http = client(NULL, 0);
	int fd = quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);

	/* Sockets are in the same library. */
	CHECK(fd >= 0 && quicket_close(fd) == 0);
	requests(http);
	bodies(http);
	lengths(http);
	deadlines(http);
	failures(http);
	threads(http);
	forks(http);
	quicket_http_free(http);
	sessions();
	puts("passed");
	return 0;
}
