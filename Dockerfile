# An image with the program, the Python package and MPI, from the packages of debian/:
#
#     docker build -t paceline .
#     docker run --rm paceline simulate --method gap-aware --workers 8
#
# A run of several processes needs shared memory: add --shm-size 1g, or --ipc host.
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev
COPY . /src
WORKDIR /src
RUN apt-get build-dep -y --no-install-recommends ./ && dpkg-buildpackage -b -us -uc

FROM debian:bookworm-slim
COPY --from=build /*.deb /packages/
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        /packages/paceline_*.deb /packages/paceline-mpi_*.deb /packages/python3-paceline_*.deb \
    && rm -rf /packages /var/lib/apt/lists/*
ENTRYPOINT ["paceline"]
