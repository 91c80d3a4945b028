/* Runs a fuzz target once over every file of its corpus, so that what a fuzzer found once
 * stays fixed in builds without one. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Feeds what is in @fd, in memory of exactly that size so that ASan sees any overread. */
static int replay(int fd)
{
	struct stat info;
	uint8_t *data;
	size_t size;
	int status = -1;

	if (fstat(fd, &info) < 0)
		return -1;
	size = (size_t)info.st_size;
	data = malloc(size);
	if (data != NULL && read(fd, data, size) == (ssize_t)size)
		status = LLVMFuzzerTestOneInput(data, size);
	free(data);
	return status;
}

int main(int argc, char *argv[])
{
	const char *folder = argc == 2 ? argv[1] : "";
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int files = 0;

	if (dir == NULL) {
		fprintf(stderr, "replay: cannot open corpus \"%s\": %s\n", folder,
			strerror(errno));
		return EXIT_FAILURE;
	}
	while ((entry = readdir(dir)) != NULL) {
		int fd;
		int status;

		if (entry->d_name[0] == '.')
			continue;
		printf("replay: %s\n", entry->d_name);
		(void)fflush(stdout); /* the last one named is the one that crashed */
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		status = fd < 0 ? -1 : replay(fd);
		if (fd >= 0)
			(void)close(fd);
		if (status != 0) {
			fprintf(stderr, "replay: %s failed\n", entry->d_name);
			return EXIT_FAILURE;
		}
		files++;
	}
	(void)closedir(dir);
	if (files == 0)
		fprintf(stderr, "replay: no file in \"%s\"\n", folder);
	return files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
