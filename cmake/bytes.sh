# bytes.sh NAME FILE: the file as a C array of characters that ends with a zero.
echo "extern const char $1[];"
echo "const char $1[] = {"
od -An -v -to1 "$2" | sed "s/  *\([0-7][0-7]*\)/'\\\\\1',/g" # char may have a sign, or none
echo "0};"
