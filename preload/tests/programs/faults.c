/* What goes wrong around sockets: threads that are cancelled, processes that end at work, handlers of signals, want of
 * descriptors and threads. */
#include "pair.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The longest wait for what must come, in milliseconds. */
#define WAIT 20000

static void patient(int fd)
{
	struct timeval time = { .tv_sec = WAIT / 1000 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
}

/* A connection with an open stream each way. */
static struct pair with_stream(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[8];
	patient(pair.server);
	patient(pair.client);
	CHECK(send(pair.client, "hello", 5, MSG_SYN) == 5);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 5);
	return pair;
}

/* Calls of a thread that is to be cancelled: none of them is a cancellation point. */
struct cancelled {
	struct pair pair;
	int accepted;
	volatile int is_asked;
};

static void *is_cancelled(void *argument)
{
	struct cancelled *cancelled = argument;
	char data[8];
	CHECK(pthread_cancel(pthread_self()) == 0);
	cancelled->is_asked = 1;
	CHECK(recv(cancelled->pair.server, data, sizeof(data), 0) == 1);
	CHECK(send(cancelled->pair.server, "back", 4, 0) == 4);
	cancelled->accepted = accept(cancelled->pair.listener, NULL, NULL);
	CHECK(cancelled->accepted >= 0);
	pthread_testcancel();
	CHECK(!"the request is still there");
	return NULL;
}

static void cancelled_calls(void)
{
	struct cancelled cancelled = { .pair = with_stream() };
	struct pair *pair = &cancelled.pair;
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	pthread_t thread;
	char data[8];
	void *answer;
	CHECK(pthread_create(&thread, NULL, is_cancelled, &cancelled) == 0);
	while (!cancelled.is_asked)
		usleep(1000);
	/* Time to fall asleep in. Without it the call has as much to do, but for that. */
	usleep(20000);
	CHECK(send(pair->client, "x", 1, 0) == 1);
	CHECK(recv(pair->client, data, sizeof(data), 0) == 4);
	/* A client that does not finish its handshake is enough. */
	CHECK(getsockname(pair->listener, (struct sockaddr *)&address, &length) == 0);
	int other = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_QUIC);
	CHECK(connect(other, (struct sockaddr *)&address, length) == 0);
	int (*handshake)(int, const char *, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_client_handshake");
	FAILS(handshake(other, "localhost", "test", NULL, given("PIN")), EAGAIN);
	CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
	/* The socket is as before. */
	CHECK(send(pair->client, "y", 1, 0) == 1);
	CHECK(recv(pair->server, data, sizeof(data), 0) == 1);
}

static volatile int begins_to_wait;

static void *polls(void *argument)
{
	struct pollfd poll_fd = { .fd = *(int *)argument, .events = POLLIN };
	begins_to_wait = 1;
	poll(&poll_fd, 1, -1);
	return NULL;
}

static void *selects(void *argument)
{
	fd_set set;
	int fd = *(int *)argument;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	begins_to_wait = 1;
	select(fd + 1, &set, NULL, NULL, NULL);
	return NULL;
}

/* poll(2) and select(2) are cancellation points; what a thread polled ends with the last of its descriptors. */
static void cancelled_polls(void)
{
	void *(*const waits[])(void *) = { polls, selects };
	for (size_t i = 0; i < 2; i++) {
		struct pair pair = with_stream();
		pthread_t thread;
		char data[8];
		void *answer;
		begins_to_wait = 0;
		CHECK(pthread_create(&thread, NULL, waits[i], &pair.client) == 0);
		while (!begins_to_wait)
			usleep(1000);
		usleep(20000);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
		CHECK(close(pair.client) == 0);
		FAILS(recv(pair.server, data, sizeof(data), 0), ENOTCONN);
	}
}

/* The socket of a process that ends. */
static int last_socket = -1;

static void say_farewell(void)
{
	CHECK(send(last_socket, "farewell", 8, 0) == 8);
}

static void write_stream(void)
{
	FILE *stream = fdopen(last_socket, "w");
	CHECK(stream != NULL && fprintf(stream, "farewell") == 8);
}

static void after_all(void *nothing)
{
	(void)nothing;
	/* The connection is closed: an error, and no signal. */
	if (last_socket >= 0)
		FAILS(send(last_socket, "x", 1, 0), EPIPE);
}

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

/* Entered before the constructors of libraries, and for none of them: called after what they have entered. */
static void before_all(void)
{
	__cxa_atexit(after_all, NULL, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = before_all;

/* A process that sends its last words by one of both, and ends. */
static void farewell(void (*at_exit)(void), void (*at_work)(void))
{
	int ends[2];
	struct sockaddr_storage address;
	socklen_t length;
	struct pair pair = { .listener = -1 };
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (at_exit != NULL)
			CHECK(atexit(at_exit) == 0);
		int (*handshake)(int, const char *, const char *, const char *, const char *) =
			(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
				RTLD_DEFAULT, "quicket_client_handshake");
		CHECK(read(ends[0], &length, sizeof(length)) == sizeof(length));
		CHECK(read(ends[0], &address, sizeof(address)) == sizeof(address));
		last_socket = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
		CHECK(connect(last_socket, (struct sockaddr *)&address, length) == 0);
		CHECK(handshake(last_socket, "localhost", "test", NULL, given("PIN")) == 0);
		CHECK(send(last_socket, "!", 1, MSG_SYN) == 1);
		if (at_work != NULL)
			at_work();
		exit(0);
	}
	pair.listener = listener(AF_INET, &address, &length);
	CHECK(write(ends[1], &length, sizeof(length)) == sizeof(length));
	CHECK(write(ends[1], &address, sizeof(address)) == sizeof(address));
	serve(&pair);
	patient(pair.server);
	char words[32];
	size_t got = 0;
	while (got < 9) {
		ssize_t more = recv(pair.server, words + got, sizeof(words) - got, 0);
		CHECK(more > 0);
		got += (size_t)more;
	}
	CHECK(got == 9 && memcmp(words, "!farewell", 9) == 0);
	FAILS(recv(pair.server, words, sizeof(words), 0), ENOTCONN);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What the handler of a signal has opened. */
static volatile int opened[2] = { -1, -1 };

static void opens(int number)
{
	(void)number;
	int before = errno;
	opened[0] = (socket)(AF_INET, SOCK_DGRAM, 0);
	opened[1] = (dup)(0);
	errno = before;
}

static void check_opened(void)
{
	for (size_t i = 0; i < 2; i++) {
		CHECK(opened[i] >= 0);
		CHECK(fcntl(opened[i], F_GETFD) >= 0);
		CHECK(close(opened[i]) == 0);
		opened[i] = -1;
	}
}

struct sleeper {
	pthread_t thread;
	pid_t number;
	int fd;
};

/* Sends a thread a signal when it sleeps in a call, and then ends the call. */
static void *interrupt(void *argument)
{
	struct sleeper *sleeper = argument;
	char path[64], line[64] = "";
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)sleeper->number);
	for (int tries = 0; atol(line) != SYS_ppoll; tries++) {
		CHECK(tries < WAIT);
		usleep(1000);
		FILE *file = fopen(path, "r");
		CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
		fclose(file);
	}
	CHECK(pthread_kill(sleeper->thread, SIGUSR1) == 0);
	while (opened[1] < 0)
		usleep(1000);
	CHECK(send(sleeper->fd, "x", 1, 0) == 1);
	return NULL;
}

static void handlers(void)
{
	struct pair pair = with_stream();
	struct sigaction action = { .sa_handler = opens, .sa_flags = SA_RESTART };
	struct sleeper sleeper = { pthread_self(), (pid_t)syscall(SYS_gettid), pair.client };
	pthread_t thread;
	char data[8];
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
	/* Of a call with a time the signal would be the end. */
	struct timeval never = { 0 };
	CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)) == 0);
	CHECK(pthread_create(&thread, NULL, interrupt, &sleeper) == 0);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	check_opened();
	/* Also that of the call's own signal. */
	CHECK(shutdown(pair.server, SHUT_RDWR) == 0);
	FAILS(send(pair.server, "x", 1, 0), EPIPE);
	check_opened();
}

static void *connects(void *argument)
{
	struct pair *pair = argument;
	int (*handshake)(int, const char *, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_client_handshake");
	CHECK(handshake(pair->client, "localhost", "test", NULL, given("PIN")) == 0);
	return NULL;
}

/* A connection for which there is no descriptor waits for the next call. */
static void exhaustion(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	struct pair pair = { .listener = listener(AF_INET, &address, &length) };
	int (*handshake)(int, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_server_handshake");
	pthread_t thread;
	char data[8];
	pair.client = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(connect(pair.client, (struct sockaddr *)&address, length) == 0);
	CHECK(pthread_create(&thread, NULL, connects, &pair) == 0);
	struct pollfd waits = { .fd = pair.listener, .events = POLLIN };
	CHECK(poll(&waits, 1, WAIT) == 1 && waits.revents == POLLIN);
	struct rlimit before, none;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	FAILS(accept(pair.listener, NULL, NULL), EMFILE);
	FAILS(accept(pair.listener, NULL, NULL), EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(poll(&waits, 1, 0) == 1 && waits.revents == POLLIN);
	CHECK(fcntl(pair.listener, F_SETFL, O_NONBLOCK) == 0);
	pair.server = accept(pair.listener, NULL, NULL);
	CHECK(pair.server >= 0);
	CHECK(poll(&waits, 1, 0) == 0);
	FAILS(accept(pair.listener, NULL, NULL), EAGAIN);
	CHECK(handshake(pair.server, given("KEY"), given("CERTIFICATE"), "test") == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(send(pair.client, "x", 1, MSG_SYN) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
}

/* ... and is closed by the end of the process if there is none. */
static void unopened(void)
{
	int ends[2];
	struct sockaddr_storage address;
	socklen_t length;
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct pollfd waits = { .fd = listener(AF_INET, &address, &length), .events = POLLIN };
		struct rlimit none;
		CHECK(write(ends[1], &length, sizeof(length)) == sizeof(length));
		CHECK(write(ends[1], &address, sizeof(address)) == sizeof(address));
		CHECK(poll(&waits, 1, WAIT) == 1 && waits.revents == POLLIN);
		CHECK(getrlimit(RLIMIT_NOFILE, &none) == 0);
		none.rlim_cur = 3;
		CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
		FAILS(accept(waits.fd, NULL, NULL), EMFILE);
		exit(0);
	}
	int (*handshake)(int, const char *, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_client_handshake");
	CHECK(read(ends[0], &length, sizeof(length)) == sizeof(length));
	CHECK(read(ends[0], &address, sizeof(address)) == sizeof(address));
	int client = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	patient(client);
	CHECK(connect(client, (struct sockaddr *)&address, length) == 0);
	/* Otherwise it is ETIMEDOUT, or EAGAIN. */
	FAILS(handshake(client, "localhost", "test", NULL, given("PIN")), ECONNRESET);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static volatile int no_threads;
static volatile int threads_refused;

/* In place of the C library's, for all of the process. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
		   void *argument)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
			RTLD_NEXT, "pthread_create");
	if (no_threads) {
		threads_refused++;
		return EAGAIN;
	}
	return next(thread, attributes, start, argument);
}

/* Polling goes on once there can be threads again. */
static void no_thread(void)
{
	struct pair pair = with_stream();
	struct epoll_event event = { .events = EPOLLIN };
	char data[8];
	int epoll = epoll_create1(0);
	CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, pair.client, &event) == 0);
	no_threads = 1;
	CHECK(send(pair.server, "x", 1, 0) == 1);
	for (int tries = 0; threads_refused == 0; tries++) {
		CHECK(tries < WAIT);
		usleep(1000);
	}
	no_threads = 0;
	CHECK(recv(pair.client, data, sizeof(data), 0) == 1);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, pair.client, &event) == 0);
	CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
	CHECK(send(pair.server, "y", 1, 0) == 1);
	CHECK(epoll_wait(epoll, &event, 1, WAIT) == 1 && event.events == EPOLLIN);
}

/* closefrom(3) where close_range(2) is filtered, as old sandboxes do it. */
static void filtered(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	struct pair pair = with_stream();
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	/* More than one answer of the kernel lists. */
	int low = open("/dev/null", O_RDONLY), some[200];
	CHECK(low >= 0);
	for (size_t i = 0; i < 200; i++)
		CHECK((some[i] = fcntl(low, F_DUPFD, 100)) >= 100);
	closefrom(100);
	for (size_t i = 0; i < 200; i++)
		FAILS(fcntl(some[i], F_GETFD), EBADF);
	CHECK(fcntl(low, F_GETFD) >= 0);
	CHECK(send(pair.client, "x", 1, 0) == 1);
	closefrom(3);
	FAILS(fcntl(low, F_GETFD), EBADF);
	FAILS(send(pair.client, "x", 1, 0), EBADF);
	struct pair again = with_stream();
	CHECK(close(again.client) == 0);
}

/* Arguments with which the kernel is kinder, or has other errors. */
static void arguments(void)
{
	struct pair pair = with_stream();
	struct quic_stream_info info = { .stream_id = 0 };
	char data[8], long_info[24] = { 0 };
	int ends[2];
	CHECK(send_with(pair.client, "a", 1, QUIC_STREAM_INFO, &info, 12, 0) == 1);
	CHECK(send_with(pair.client, "b", 1, QUIC_STREAM_INFO, long_info, sizeof(long_info), 0) == 1);
	CHECK(recv(pair.server, data, 1, 0) == 1 && data[0] == 'a');
	CHECK(recv(pair.server, data, 1, 0) == 1 && data[0] == 'b');
	FAILS(sendfile(pair.client, 1 << 19, NULL, 10), EBADF);
	CHECK(pipe(ends) == 0);
	FAILS(sendfile(pair.client, ends[0], NULL, 10), EINVAL);
}

/* What is before the memory that cannot be read. */
#define READABLE (1 << 20)

static void *receives(void *argument)
{
	static char data[READABLE];
	for (size_t got = 0; got < READABLE;) {
		ssize_t more = recv(*(int *)argument, data, READABLE - got, 0);
		CHECK(more > 0);
		got += (size_t)more;
	}
	return NULL;
}

/* What can be sent is, before memory that cannot be read. */
static void memory(void)
{
	struct pair pair = with_stream();
	pthread_t thread;
	char data[8];
	char *all = mmap(NULL, 2 * READABLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	CHECK(all != MAP_FAILED && mprotect(all + READABLE, READABLE, PROT_NONE) == 0);
	FAILS(send(pair.client, all + READABLE, READABLE, 0), EFAULT);
	/* Not all of it has room before some is received. */
	CHECK(pthread_create(&thread, NULL, receives, &pair.server) == 0);
	CHECK(send(pair.client, all, 2 * READABLE, 0) == READABLE);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(send(pair.client, "x", 1, 0) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1 && data[0] == 'x');
}

int main(int count, char **arguments_)
{
	const char *what = count > 1 ? arguments_[1] : "";
	/* Nothing here takes so long, unless it hangs. */
	alarm(120);
	if (strcmp(what, "cancelled_calls") == 0) {
		cancelled_calls();
	} else if (strcmp(what, "cancelled_polls") == 0) {
		cancelled_polls();
	} else if (strcmp(what, "last_handler") == 0) {
		farewell(say_farewell, NULL);
	} else if (strcmp(what, "last_stream") == 0) {
		farewell(NULL, write_stream);
	} else if (strcmp(what, "handlers") == 0) {
		handlers();
	} else if (strcmp(what, "exhaustion") == 0) {
		exhaustion();
	} else if (strcmp(what, "unopened") == 0) {
		unopened();
	} else if (strcmp(what, "no_thread") == 0) {
		no_thread();
	} else if (strcmp(what, "filtered") == 0) {
		filtered();
	} else if (strcmp(what, "memory") == 0) {
		memory();
	} else if (strcmp(what, "arguments") == 0) {
		arguments();
	} else {
		fprintf(stderr, "which test?\n");
		return 2;
	}
	puts("passed");
	return 0;
}
