# The page of `paceline report` is part of the library: its files become arrays of bytes in
# ${page_source}.
set(page_source ${PROJECT_BINARY_DIR}/page_assets.c)
set(page_assets)
set(page_files)
foreach(asset html=src/observe/page/page.html css=src/observe/page/page.css
    data_js=src/observe/page/data.js gantt_js=src/observe/page/gantt.js
    charts_js=src/observe/page/charts.js sentences_js=src/observe/page/sentences.js
    page_js=src/observe/page/page.js
    uplot_js=third_party/uplot/uPlot.iife.min.js uplot_css=third_party/uplot/uPlot.min.css)
  string(REPLACE "=" "=${PROJECT_SOURCE_DIR}/" asset ${asset})
  list(APPEND page_assets ${asset})
  string(REGEX REPLACE "^[^=]*=" "" file ${asset})
  list(APPEND page_files ${file})
endforeach()
add_custom_command(OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} -DOUT=${page_source} "-DASSETS=${page_assets}"
    -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)

# The colours of its light theme, for what else is drawn: "0072b2 d55e00 …".
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS src/observe/page/page.css)
file(STRINGS src/observe/page/page.css page_colours REGEX "^ *--c0" LIMIT_COUNT 1)
string(REGEX MATCHALL "#[0-9a-f]+" page_colours "${page_colours}")
string(REPLACE ";" " " page_colours "${page_colours}")
string(REPLACE "#" "" page_colours "${page_colours}")
