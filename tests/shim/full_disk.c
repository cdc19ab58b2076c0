/* A disk that is full, breaks, or loses its process at a chosen call; for tests, without privileges.
 *
 * Preloaded into a process, it has the kernel trap every system call that changes files (a seccomp
 * filter that answers with SIGSYS), so calls that bypass libc are seen too. The handler looks whether
 * the call concerns a file below CONSIGN_SHIM_DIR and then lets it through, fails it, or kills the
 * process. It makes calls of its own from one page that the filter lets pass.
 *
 * CONSIGN_SHIM_STATE names a file that is shared with the test, an array of 64-bit words (enum word).
 * The test may change the first ones while the process runs; the others count.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <ucontext.h>
#include <unistd.h>

enum word {
    MAGIC,      /* 0x636f6e7369676e31 */
    CAPACITY,   /* bytes that files below the directory may take; all ones: as many as there are */
    KILL_AT,    /* the process dies instead of this counted call; 0: never */
    KILL_SYNC,  /* the process dies instead of this sync; 0: never */
    BREAK_SYNC, /* this sync fails with EIO; 0: none */
    CALLS,      /* counted calls so far: all that change files */
    SYNCS,      /* fsync and fdatasync among them */
    REFUSED,    /* calls that failed or were cut short for want of space */
    USED,       /* bytes taken, as last seen */
    STALE,      /* 1: USED must be found anew */
    BYTES,      /* bytes written so far */
    WORDS
};
#define UNLIMITED UINT64_MAX
#define PAGE ((uintptr_t)0x20000000000)
#define BLOCK 4096ULL

static volatile uint64_t *state;
static char dir[4096];
static size_t dir_len;

static uint64_t get(enum word w) { return __atomic_load_n(&state[w], __ATOMIC_SEQ_CST); }
static void set(enum word w, uint64_t v) { __atomic_store_n(&state[w], v, __ATOMIC_SEQ_CST); }
static uint64_t add(enum word w, uint64_t v) { return __atomic_add_fetch(&state[w], v, __ATOMIC_SEQ_CST); }

/* The machine's way into the kernel: nr and six arguments, as a function of its own. */
#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
static const unsigned char door[] = {
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2,
    0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
#define REG(uc, n) ((uc)->uc_mcontext.gregs[n])
static const int arg_reg[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
#define RESULT(uc) REG(uc, REG_RAX)
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
static const uint32_t door[] = {0xaa0003e8, 0xaa0103e0, 0xaa0203e1, 0xaa0303e2, 0xaa0403e3,
                                0xaa0503e4, 0xaa0603e5, 0xd4000001, 0xd65f03c0};
#define REG(uc, n) ((uc)->uc_mcontext.regs[n])
static const int arg_reg[6] = {0, 1, 2, 3, 4, 5};
#define RESULT(uc) REG(uc, 0)
#else
#error "no way into the kernel is written down for this machine"
#endif

typedef long (*way)(long, long, long, long, long, long, long);
static long kernel(long nr, const long a[6]) {
    return ((way)PAGE)(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#define CALL(nr, ...) kernel(nr, (const long[6]){__VA_ARGS__})

static void die(const char *why) {
    ssize_t n = write(2, why, strlen(why));
    _exit(n < 0 ? 98 : 99);
}

/* Whether `path` is the directory or below it. */
static int below(const char *path, long len) {
    return len >= (long)dir_len && memcmp(path, dir, dir_len) == 0 &&
           (len == (long)dir_len || path[dir_len] == '/');
}

static int link_below(const char *link) {
    char target[4096];
    long len = CALL(SYS_readlinkat, AT_FDCWD, (long)link, (long)target, sizeof target);
    return len > 0 && below(target, len);
}

static int fd_below(long fd) {
    char link[40] = "/proc/self/fd/";
    char digits[20];
    size_t at = 14, n = 0;
    if (fd < 0)
        return 0;
    do
        digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) > 0);
    while (n > 0)
        link[at++] = digits[--n];
    link[at] = 0;
    return link_below(link);
}

static int path_below(long dirfd, const char *path) {
    if (path[0] == '/')
        return below(path, (long)strlen(path));
    return (int)dirfd == AT_FDCWD ? link_below("/proc/self/cwd") : fd_below((int)dirfd);
}

struct entry {
    uint64_t ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};

/* Bytes taken by the files of a folder and of those below it; without malloc, this is a handler. */
static uint64_t taken(long at, const char *name) {
    uint64_t sum = 0;
    long flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
    long fd = CALL(SYS_openat, at, (long)name, flags);
    if (fd < 0)
        return 0;
    char buffer[2048] __attribute__((aligned(8)));
    for (long n; (n = CALL(SYS_getdents64, fd, (long)buffer, sizeof buffer)) > 0;) {
        for (long i = 0; i < n;) {
            struct entry *e = (struct entry *)(buffer + i);
            i += e->len;
            struct stat st;
            if (strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0)
                continue;
            if (CALL(SYS_newfstatat, fd, (long)e->name, (long)&st, AT_SYMLINK_NOFOLLOW) != 0)
                continue;
            if (S_ISDIR(st.st_mode))
                sum += taken(fd, e->name);
            else
                sum += (uint64_t)st.st_blocks * 512;
        }
    }
    CALL(SYS_close, fd);
    return sum;
}

static uint64_t used(void) {
    if (__atomic_exchange_n(&state[STALE], 0, __ATOMIC_SEQ_CST))
        set(USED, taken(AT_FDCWD, dir));
    return get(USED);
}

static uint64_t room(void) {
    uint64_t capacity = get(CAPACITY), taken_now = capacity == UNLIMITED ? 0 : used();
    return capacity > taken_now ? capacity - taken_now : 0;
}

static uint64_t up(uint64_t n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

static uint64_t total(const struct iovec *v, long count) {
    uint64_t sum = 0;
    for (long i = 0; i < count; i++)
        sum += v[i].iov_len;
    return sum;
}

static long refuse(void) {
    add(REFUSED, 1);
    return -ENOSPC;
}

/* A call that may take space at [from, from + len) of `fd`. `cut` tells whether it may be done in
 * part, by a smaller value of argument 2. */
static long growing(long nr, long a[6], uint64_t from, uint64_t len, int cut) {
    struct stat before, after;
    if (get(CAPACITY) == UNLIMITED || CALL(SYS_fstat, a[0], (long)&before) != 0) {
        set(STALE, 1);
        return kernel(nr, a);
    }
    uint64_t size = (uint64_t)before.st_size, held = (uint64_t)before.st_blocks * 512;
    uint64_t end = up(from + len), need;
    if (nr == SYS_fallocate)
        need = end > held ? end - held : 0;
    else if (held >= size) /* no holes: what is inside is written over */
        need = end > up(size) ? end - up(size) : 0;
    else
        need = up(len);
    uint64_t free = room();
    if (need > free) {
        uint64_t fits = free / BLOCK * BLOCK;
        if (!cut || need - fits >= len)
            return refuse();
        a[2] = (long)((len - (need - fits)) / BLOCK * BLOCK);
        if (a[2] == 0)
            return refuse();
        add(REFUSED, 1);
    }
    long result = kernel(nr, a);
    if (CALL(SYS_fstat, a[0], (long)&after) == 0)
        add(USED, ((uint64_t)after.st_blocks - (uint64_t)before.st_blocks) * 512);
    return result;
}

static long written(long result) {
    if (result > 0)
        add(BYTES, (uint64_t)result);
    return result;
}

static uint64_t position(long fd) {
    struct stat st;
    long flags = CALL(SYS_fcntl, fd, F_GETFL);
    if (flags > 0 && (flags & O_APPEND) && CALL(SYS_fstat, fd, (long)&st) == 0)
        return (uint64_t)st.st_size;
    long at = CALL(SYS_lseek, fd, 0, SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

static void count(int sync) {
    uint64_t call = add(CALLS, 1), syncs = sync ? add(SYNCS, 1) : 0;
    uint64_t at = get(KILL_AT), at_sync = get(KILL_SYNC);
    if ((at && call >= at) || (at_sync && syncs >= at_sync))
        for (;;)
            CALL(SYS_kill, CALL(SYS_getpid), SIGKILL);
}

static long synced(long nr, long a[6]) {
    uint64_t at = get(BREAK_SYNC);
    count(1);
    return at && get(SYNCS) == at ? -EIO : kernel(nr, a);
}

static long less_free(long result, struct statfs *fs) {
    if (result == 0 && get(CAPACITY) != UNLIMITED) {
        uint64_t blocks = room() / (uint64_t)fs->f_bsize;
        fs->f_blocks = get(CAPACITY) / (uint64_t)fs->f_bsize;
        if (blocks < fs->f_bfree)
            fs->f_bfree = blocks;
        if (blocks < fs->f_bavail)
            fs->f_bavail = blocks;
    }
    return result;
}

/* A change of names: counted, and what it frees is found out later. */
static long naming(long nr, long a[6], long dirfd, long path) {
    if (path_below(dirfd, (const char *)path)) {
        count(0);
        set(STALE, 1);
    }
    return kernel(nr, a);
}

static long on_file(long nr, long a[6]) {
    const struct iovec *v = (const struct iovec *)a[1];
    switch (nr) {
    case SYS_fsync:
    case SYS_fdatasync:
        return synced(nr, a);
    case SYS_fstatfs:
        return less_free(kernel(nr, a), (struct statfs *)a[1]);
    case SYS_write:
        count(0);
        return written(growing(nr, a, position(a[0]), (uint64_t)a[2], 1));
    case SYS_pwrite64:
        count(0);
        return written(growing(nr, a, (uint64_t)a[3], (uint64_t)a[2], 1));
    case SYS_writev:
        count(0);
        return written(growing(nr, a, position(a[0]), total(v, a[2]), 0));
    case SYS_pwritev:
    case SYS_pwritev2:
        count(0);
        return written(growing(nr, a, (uint64_t)a[3], total(v, a[2]), 0));
    case SYS_fallocate:
        count(0);
        if (a[1] & ~FALLOC_FL_KEEP_SIZE) /* gives space back, or moves it */
            break;
        return growing(nr, a, (uint64_t)a[2], (uint64_t)a[3], 0);
    default:
        count(0);
        break;
    }
    set(STALE, 1);
    return kernel(nr, a);
}

static long decide(long nr, long a[6]) {
    switch (nr) {
    case SYS_openat:
        return naming(nr, a, a[0], a[1]);
    case SYS_mkdirat:
    case SYS_unlinkat:
    case SYS_renameat:
    case SYS_renameat2:
        return naming(nr, a, a[0], a[1]);
#ifdef SYS_open
    case SYS_open:
    case SYS_mkdir:
    case SYS_unlink:
    case SYS_rename:
        return naming(nr, a, AT_FDCWD, a[0]);
#endif
    case SYS_statfs: {
        long result = kernel(nr, a);
        int ours = path_below(AT_FDCWD, (const char *)a[0]);
        return ours ? less_free(result, (struct statfs *)a[1]) : result;
    }
    default:
        return fd_below(a[0]) ? on_file(nr, a) : kernel(nr, a);
    }
}

static void trapped(int signal, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    long a[6];
    (void)signal;
    for (int i = 0; i < 6; i++)
        a[i] = (long)REG(uc, arg_reg[i]);
    long result = decide(info->si_syscall, a);
    RESULT(uc) = result;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ARG(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (n))
#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)
#define TRAP(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), RET(SECCOMP_RET_TRAP)
/* Only when it may create a file; most calls only open one. */
#define TRAP_CREAT(nr, n)                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 4), ARG(n),                                         \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1), RET(SECCOMP_RET_TRAP),                \
        RET(SECCOMP_RET_ALLOW)

static void install(void) {
    struct sock_filter filter[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RET(SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(PAGE >> 32), 0, 4),
        LOAD(instruction_pointer),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xfffff000),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)PAGE, 0, 1),
        RET(SECCOMP_RET_ALLOW),
        LOAD(nr),
        TRAP(SYS_write), TRAP(SYS_pwrite64), TRAP(SYS_writev), TRAP(SYS_pwritev),
        TRAP(SYS_pwritev2), TRAP(SYS_fallocate), TRAP(SYS_ftruncate), TRAP(SYS_fsync),
        TRAP(SYS_fdatasync), TRAP(SYS_mkdirat), TRAP(SYS_unlinkat), TRAP(SYS_renameat2),
        TRAP(SYS_statfs), TRAP(SYS_fstatfs), TRAP(SYS_renameat),
#ifdef SYS_open
        TRAP(SYS_mkdir), TRAP(SYS_unlink), TRAP(SYS_rename), TRAP_CREAT(SYS_open, 1),
#endif
        TRAP_CREAT(SYS_openat, 2),
        RET(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        die("shim: the kernel takes no filter\n");
}

static const char *variable(char **env, const char *name) {
    size_t len = strlen(name);
    for (; *env != NULL; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

/* Linked with `-z initfirst`: a program that was started by a process under the filter must have its
 * handler before any other library makes a call. libc itself has no environment yet. */
__attribute__((constructor)) static void start(int argc, char **argv, char **env) {
    const char *where = variable(env, "CONSIGN_SHIM_DIR");
    const char *shared = variable(env, "CONSIGN_SHIM_STATE");
    (void)argc, (void)argv;
    if (where == NULL || shared == NULL)
        return;
    if (realpath(where, dir) == NULL)
        die("shim: no CONSIGN_SHIM_DIR\n");
    dir_len = strlen(dir);
    int fd = open(shared, O_RDWR | O_CLOEXEC);
    void *words = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || words == MAP_FAILED)
        die("shim: no CONSIGN_SHIM_STATE\n");
    close(fd);
    state = words;
    if (get(MAGIC) != 0x636f6e7369676e31)
        die("shim: CONSIGN_SHIM_STATE is not one\n");
    set(STALE, 1);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *page = mmap((void *)PAGE, BLOCK, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (page != (void *)PAGE)
        die("shim: its page is taken\n");
    memcpy(page, door, sizeof door);
    if (mprotect(page, BLOCK, PROT_READ | PROT_EXEC) != 0)
        die("shim: its page cannot be run\n");
    __builtin___clear_cache((char *)page, (char *)page + sizeof door);
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0)
        die("shim: no handler\n");
    /* A filter outlives exec; the handler does not. The page stands at the same place everywhere. */
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0)
        install();
}
