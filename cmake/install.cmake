# Installation. All installed files refer to each other by relative paths, so the prefix can be
# chosen at installation and the tree can be moved.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/paceline)
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG
     /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PREFIX_FROM_PKGCONFIG "${PREFIX_FROM_PKGCONFIG}")
string(REPLACE ";" " " OPENBLAS_LIBS_PRIVATE "${OPENBLAS_LDFLAGS}")
string(REPLACE ";" " " JANSSON_LIBS_PRIVATE "${JANSSON_LDFLAGS}")
string(REPLACE ";" " " NETTLE_LIBS_PRIVATE "${NETTLE_LDFLAGS}")
string(REPLACE ";" " " MICROHTTPD_LIBS_PRIVATE "${MICROHTTPD_LDFLAGS}")
string(REPLACE ";" " " CURL_LIBS_PRIVATE "${CURL_LDFLAGS}")
string(REPLACE ";" " " GNUTLS_LIBS_PRIVATE "${GNUTLS_LDFLAGS}")
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE DL_LIBS_PRIVATE)

configure_file(cmake/paceline.pc.in paceline.pc @ONLY)
configure_package_config_file(cmake/paceline-config.cmake.in paceline-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(paceline-config-version.cmake COMPATIBILITY SameMajorVersion)

install(TARGETS paceline)
install(TARGETS paceline_shared EXPORT paceline-shared)
install(TARGETS paceline_static EXPORT paceline-static)
if(MPI_C_FOUND)
  install(TARGETS paceline_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES include/paceline.h include/paceline_client.h include/paceline_loop.h
              include/paceline_policy.h TYPE INCLUDE)
# The Python package looks for the library below the same prefix.
install(DIRECTORY python/paceline DESTINATION lib/python3/dist-packages
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/paceline.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/paceline.bash RENAME paceline
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/_paceline
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/paceline.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/paceline-config.cmake
              ${PROJECT_BINARY_DIR}/paceline-config-version.cmake
        DESTINATION ${package_dir})
install(EXPORT paceline-shared NAMESPACE paceline:: DESTINATION ${package_dir})
install(EXPORT paceline-static NAMESPACE paceline:: DESTINATION ${package_dir})
