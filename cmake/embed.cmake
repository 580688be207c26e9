# Writes files as arrays of bytes into a C file:
#
#     cmake -DOUT=assets.c "-DASSETS=name=path;name=path" -P embed.cmake
#
# Each becomes `const unsigned char pl_asset_NAME[]`, which a zero byte follows, and its length
# without that, `const unsigned pl_asset_NAME_length`.
set(text "/* Made by cmake/embed.cmake. */\n")
foreach(asset ${ASSETS})
  string(REGEX MATCH "^([^=]*)=(.*)$" match "${asset}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${CMAKE_MATCH_2}" bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "extern const unsigned char pl_asset_${name}[];\n"
    "extern const unsigned pl_asset_${name}_length;\n"
    "const unsigned char pl_asset_${name}[] = {\n${bytes}0};\n"
    "const unsigned pl_asset_${name}_length = ${length};\n")
endforeach()
file(WRITE "${OUT}.tmp" "${text}")
file(RENAME "${OUT}.tmp" "${OUT}")
