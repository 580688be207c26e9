/* Descriptors that belong to this process alone.
 *
 * The process at the other end of a socket learns from its end that the process is gone. A child of
 * that process would keep it open: a data loader, or whatever else a program forks. */
#ifndef PL_SYS_PRIVATE_FD_H
#define PL_SYS_PRIVATE_FD_H

/* From now on, a forked process gets a socket without a connection in the place of this one, so
 * that whatever it does with it fails. Without memory for that, it is inherited as usual. The
 * caller makes it close on exec. */
void pl_private_fd(int fd);
/* Closes it. It may be any descriptor. */
void pl_private_fd_close(int fd);

#endif
